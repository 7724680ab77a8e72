"""Which runs of equal blocks are layers, and how the numbers in their names go on."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from laws import tried
from programs_by_hand import operator, product, program, stating, sums
from same_jobs import assert_same, operators
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

from layerdag.codec.folding import rank_classes
from layerdag.errors import TraceError, UsageError
from layerdag.graph.repeats import Run
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.analysis import match_communication
from layerdag.traces.chakra.corpus import read_index, read_runs
from layerdag.traces.trace import Workload
from layerdag.workloads.scaling.layers import (
    Layers,
    _shared,
    colors,
    covered_by_count,
    number_steps,
    renumbered,
    with_layers,
)
from layerdag.workloads.scaling.program import EditableProgram, Job
from layerdag.workloads.scaling.rescaling import scale
from layerdag.workloads.transformer.shapes import ModelShape


@tried(60)
@given(st.integers(0, 90), st.integers(-9, 9), st.integers(2, 9))
def test_names_that_count_evenly_are_made_again_from_their_steps(first, step, count):
    low = first + 9 * 9  # so that no number falls below zero
    names = [f"layer.{low + step * at}.weight2" for at in range(count)]
    steps = number_steps(names)
    assert steps == [(low, step), (2, 0)]
    for at, name in enumerate(names):
        assert renumbered(names[0], [a + s * at for a, s in steps]) == name


def test_steps_of_numbers_need_two_even_names_of_the_same_words():
    assert number_steps(["layer.7"]) == [(7, 0)]
    assert number_steps(["norm", "norm"]) == []
    assert number_steps(["layer.0", "layer.1", "layer.3"]) == []
    assert number_steps(["layer.0", "block.1"]) == []
    assert number_steps(["a.4.b.0", "a.3.b.0", "a.2.b.0"]) == [(4, -1), (0, 0)]


def test_blocks_of_one_count_are_added_and_tiny_ones_are_left_out():
    runs = [Run(start=0, period=5, count=4), Run(start=30, period=3, count=4)]
    runs += [Run(start=50, period=2, count=9), Run(start=70, period=6, count=2)]
    # 5 * 4 + 3 * 4 nodes in four blocks, 6 * 2 in two; blocks of two nodes are too small.
    assert covered_by_count(runs) == {4: 32, 2: 12}


def chain(*names: str) -> EditableProgram:
    """Return products and other operators, each on the result of the one before."""
    nodes = [
        stating(product(node, (2, 3, 3), *range(max(node - 1, 0), node)), "mm")
        if name.endswith("mm")
        else operator(node, name, (6, 12), *range(max(node - 1, 0), node))
        for node, name in enumerate(names)
    ]
    named = [replace(spec, name=name) for spec, name in zip(nodes, names, strict=True)]
    return program(*named)


def inference(layers: int) -> EditableProgram:
    """Return a look-up, layers of three operators, and a last norm."""
    body = [f"layer.{at}.{word}" for at in range(layers) for word in ("mm", "gelu", "add")]
    return chain("look-up", *body, "norm")


def training(layers: int) -> EditableProgram:
    """Return layers of three operators forward, a loss, and of four backward."""
    forward = [f"layer.{at}.{word}" for at in range(layers) for word in ("mm", "gelu", "add")]
    words = ("add.dx", "gelu.dx", "dx.mm", "dw.mm")
    backward = [f"layer.{at}.{word}" for at in reversed(range(layers)) for word in words]
    return chain("look-up", *forward, "loss", *backward, "adam")


@pytest.mark.parametrize("layers", [2, 3, 7])
def test_numbered_blocks_are_layers(layers):
    found = Layers.from_program(inference(layers)).blocks
    assert found.runs == (Run(1, 3, layers),)
    assert (found.count, found.backward) == (layers, (False,))


def test_layers_are_found_by_number_depth_or_order():
    found = Layers.from_program(training(4)).blocks
    # Twelve nodes forward from 1 on, a loss at 13, sixteen backward.
    assert found.runs == (Run(1, 3, 4), Run(14, 4, 4))
    assert found.backward == (False, True)
    found = Layers.from_program(
        chain("look-up", *["aten::mm", "aten::gelu", "aten::add"] * 5)
    ).blocks
    assert found.runs == (Run(1, 3, 5),)
    assert found.backward == (False,)


def test_folded_layers_are_unrolled_to_the_program_that_they_were():
    made = training(3)
    unrolled = Layers.from_program(made).blocks.unrolled()
    assert unrolled.row_N.tolist() == list(range(made.num_nodes))
    edges = zip(*unrolled.edge_index_2E.tolist(), strict=True)
    assert set(edges) == set(zip(*made.data_edges_2E.tolist(), strict=True))


def test_blocks_that_do_not_repeat_or_are_too_small_are_no_layers():
    with pytest.raises(UsageError, match="no block of operators repeats") as error:
        Layers.from_program(chain("look-up", "aten::mm", "aten::gelu", "norm"))
    assert str(error.value).startswith("job.0.et: ")
    with pytest.raises(UsageError, match="no block of operators repeats"):
        Layers.from_program(chain("look-up", *["aten::mm", "aten::gelu"] * 4))
    with pytest.raises(UsageError, match="no blocks of operators repeat 4 times") as error:
        Layers.from_program(inference(6), 4)
    assert "found 6 x (18 nodes)" in str(error.value)


def test_two_counts_of_equal_weight_are_asked_back():
    names = ["aten::mm", "aten::gelu", "aten::add"] * 5 + ["loss"]
    made = chain(*names, *["b.mm", "aten::relu", "aten::mul", "aten::sum", "aten::exp"] * 3)
    with pytest.raises(UsageError, match="several numbers of blocks repeat") as error:
        Layers.from_program(made)
    told = str(error.value)
    assert "5 x (15 nodes)" in told
    assert "3 x (15 nodes)" in told
    assert "Say with --layers-now" in told


def test_a_backward_pass_that_does_not_repeat_is_refused():
    """One bucket of gradients cuts each layer in another place."""
    forward = [f"layer.{at}.{word}" for at in range(3) for word in ("mm", "gelu", "add")]
    backward = ["2.dw.mm", "bucket", "2.dx.mm", "1.dx.mm", "1.dw.mm", "flush", "0.dw.mm", "0.dx.mm"]
    with pytest.raises(TraceError, match="the backward pass is not made of such blocks"):
        Layers.from_program(chain(*forward, "loss.dx", *[f"layer.{name}" for name in backward]))


def test_nodes_with_other_costs_are_of_another_color():
    made = program(
        operator(0, "layer.0", (6, 12)), operator(1, "layer.1", (6, 12)),
        operator(2, "layer.2", (6, 13)), operator(3, "layer.3", (7, 12)), sums(4, 12), sums(5, 13),
    )  # fmt: skip
    assert colors(made).tolist() == [0, 0, 1, 2, 3, 4]


@tried(60)
@given(st.integers(1, 500), st.integers(1, 40))
def test_no_layer_is_lost_and_stages_differ_by_one_at_most(count, stages):
    each = _shared(count, stages)
    assert (len(each), sum(each)) == (stages, count)
    assert max(each) - min(each) <= 1
    assert each == sorted(each, reverse=True)


def made(layers: int, shape: ModelShape = LLAMA, **plan: Any) -> Workload:
    return small(replace(shape, layers=layers), **plan).workload()


def deepened(workload: Workload, count: int, now: int | None = None) -> tuple[Job, dict[str, Any]]:
    """Return a job with so many layers, and what was found."""
    programs = [
        EditableProgram.from_trace(part.trace, part.ranks) for part in rank_classes(workload)
    ]
    job = Job.from_programs(programs, dict(workload.groups), workload.source)
    return with_layers(job, job.kinds, count, now)


def nodes(workload: Workload) -> list[int]:
    return [trace.num_nodes for trace in workload.traces]


def test_stages_that_got_one_layer_more_keep_the_first_places():
    """Seven layers on two stages are four and three; ten are five and five."""
    _, found = deepened(made(7, pipeline=2, data=2, zero=3), 10)
    counts = {part["class"]: part["count"] for part in found["blocks"]}
    assert counts == {0: 4, 1: 3}
    assert (found["before"], found["after"]) == (7, 10)


def test_there_and_back_are_the_same_operators():
    source = made(3, data=2, zero=3)
    larger = scale(source, layers=8).workload
    assert_same(scale(larger, layers=3).workload, source, 2)


def test_one_layer_does_not_tell_of_a_second():
    one = scale(made(3, data=2), layers=1).workload
    assert_same(one, made(1, data=2), 2)
    with pytest.raises(UsageError, match="A job of one layer does not tell"):
        scale(one, layers=2)
    # Three layers on two stages: the second stage has one.
    with pytest.raises(UsageError, match="stage 1: no block of operators repeats"):
        deepened(made(3, pipeline=2), 8)


def test_a_stated_number_is_that_of_all_stages():
    source = made(6, pipeline=2, data=2, zero=3)
    assert deepened(source, 8, now=6)[1]["before"] == 6
    with pytest.raises(UsageError, match=r"no blocks of operators repeat 2 times; found 3 x"):
        deepened(source, 8, now=4)


PLANS: list[tuple[ModelShape, dict[str, Any]]] = [
    (GPT, {"data": 2}),
    (LLAMA, {"data": 2, "zero": 3}),
    (MIXTURE, {"data": 2, "zero": 1}),
    (LLAMA, {"data": 2, "tensor": 2}),
    (GPT, {"data": 2, "recompute": "full"}),
    (GPT, {"tensor": 2, "phase": "prefill"}),
]


@pytest.mark.parametrize(("shape", "plan"), PLANS)
def test_more_layers_are_what_the_symbolic_generator_makes(shape, plan):
    assert_same(scale(made(2, shape, **plan), layers=8).workload, made(8, shape, **plan), 2)


def test_stages_of_a_pipeline_share_the_layers():
    plan: dict[str, Any] = {"data": 2, "pipeline": 2, "micro_batches": 2}
    grown = scale(made(6, **plan), layers=9, layers_now=6).workload
    assert_same(grown, made(9, **plan))
    assert match_communication(grown).mismatches == ()


def test_layers_and_ranks_change_together():
    grown = scale(made(2, data=2, zero=3), layers=5, data=8)
    assert_same(grown.workload, made(5, data=8, batch=32, zero=3))
    assert (grown.found["layers"]["before"], grown.found["layers"]["after"]) == (2, 5)
    assert simulate(grown.workload, Cluster.preset("small"), compute="h100").makespan_ns > 0


def test_measured_jobs_get_the_layers_of_their_twins():
    names = ["0798_gpt_tp_ws2.deep6", "0719_mlp_fsdp2_ws2.deep8"]
    twins = {r.run: r for r in read_index("data/twins") if r.run in names}
    sources = [r for r in read_index("data") if r.run in {name.split(".")[0] for name in names}]
    of_run = {run.record.run: run.workload() for run in read_runs("data", sources)}
    for run in read_runs("data/twins", twins.values()):
        depth = int(run.record.hyper["depth"])
        grown = scale(of_run[run.record.run.split(".")[0]], layers=depth).workload
        assert operators(grown.traces[0]) == operators(run.traces[0]), run.record.run
        assert simulate(grown, Cluster.preset("small")).makespan_ns > 0


def test_what_works_on_all_layers_at_once_is_refused():
    with pytest.raises(UsageError, match="1 layers do not fill 2 pipeline stages"):
        scale(made(6, data=2, pipeline=2), layers=1)
    # Without gradient sums nothing tells how many weights a layer has.
    with pytest.raises(TraceError, match=r"\(adam\) works on all layers at once"):
        scale(made(2, GPT), layers=4)
    # Its size does not tell how much of it each layer has.
    with pytest.raises(TraceError, match=r"\(gradients.norms\) works on all layers at once"):
        scale(made(2, GPT, data=2, tensor=2, sequence_parallel=True), layers=4)


def test_micro_batches_are_not_taken_for_layers():
    plan: dict[str, Any] = {"data": 2, "pipeline": 2, "micro_batches": 4, "schedule": "gpipe"}
    with pytest.raises(UsageError, match="Say with --layers-now"):
        scale(made(4, **plan), layers=8)
    assert_same(scale(made(4, **plan), layers=8, layers_now=4).workload, made(8, **plan))
