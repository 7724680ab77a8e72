"""Types of results without a program."""

import pytest
import torch
from small_programs import images, language

from layerdag.graph.formats.program_json import program_graph
from layerdag.programs.inference import FAILS, ShapeInference
from layerdag.programs.sources import program

LINEAR = (
    'aten.linear.default {"arguments":[{"edge":"#"},{"parameter":["?","?"],"dtype":"float32"}]}'
)
SUM = 'aten.sum.default {"arguments":[{"edge":"#"}]}'
INPUT = 'input {"arguments":[{"input":["?","?"],"dtype":"float32"}]}'
ADD = 'aten.add.Tensor {"arguments":[{"edge":"#"},{"edge":"#"}]}'


@pytest.mark.parametrize("made", [language, images])
def test_a_recorded_program_runs_to_its_loss_with_sizes_that_all_differ(made):
    model, inputs = made()
    recorded = program(model, inputs)
    inference = ShapeInference()
    graph = program_graph(recorded.to_json(), "it")
    found = inference.results(graph)
    assert inference.runs(graph)
    assert not any(inference.is_loss(number) for number in found[:-1])


def test_a_call_that_cannot_run_has_no_type_and_neither_has_what_reads_it():
    inference = ShapeInference()
    x = inference.result(INPUT, "B0 n0", ())
    other = inference.result(INPUT, "B0 n1", ())
    assert inference.result(ADD, "", (x, x)) == x
    assert inference.result(ADD, "", (x, other)) == FAILS
    assert inference.result(SUM, "", (FAILS,)) == FAILS


@pytest.mark.parametrize("sizes", ["w0", "w0 a0.-1 a0.-1", "w0 a3.-1", "w0 q"])
def test_sizes_that_do_not_fill_a_call_have_no_type(sizes):
    inference = ShapeInference()
    x = inference.result(INPUT, "B0 n0", ())
    assert inference.result(LINEAR, sizes, (x,)) == FAILS


def test_in_inference_mode_results_want_gradients_all_the_same():
    """As in a sampler."""
    inference = ShapeInference()
    with torch.inference_mode():
        x = inference.result(INPUT, "B0 n0", ())
        y = inference.result(LINEAR, "w0 a0.-1", (x,))
        loss = inference.result(SUM, "", (y,))
    assert inference.is_loss(loss)
    assert not inference.is_loss(inference.result(SUM, "", (x,)))
