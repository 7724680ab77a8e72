"""Programs that run while they are drawn."""

import numpy as np
import pytest
import torch

from layerdag.errors import DataError, UsageError
from layerdag.graph.formats.program_json import program_graph
from layerdag.programs.forward_program import Program
from layerdag.programs.inference import ShapeInference
from layerdag.sampling.execution_check import ExecutionCheck, drawn_program
from layerdag.sampling.generated import GeneratedProgram
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.schema.size_tables import SizeTables

NODES = [
    {"operator": "input", "arguments": [{"input": ["B0", "n0"], "dtype": "float32"}]},
    {
        "operator": "aten.linear.default",
        "arguments": [{"edge": "#"}, {"parameter": ["w0", "a0.-1"], "dtype": "float32"}],
        "inputs": [0],
    },
    {"operator": "aten.mul.Tensor", "arguments": [{"edge": "#"}, {"edge": "#"}], "inputs": [1, 1]},
    {"operator": "aten.sum.default", "arguments": [{"edge": "#"}], "inputs": [2]},
]
DATA = {
    "format": "layerdag-program/1",
    "name": "small",
    "sizes": {"B0": 4, "n0": 8, "w0": 16},
    "outputs": [3],
    "nodes": NODES,
}
GRAPH = program_graph(DATA, "small")
SCHEMA = GraphSchema.fit("program", [GRAPH])


def codes(at: int) -> torch.Tensor:
    dag = SCHEMA.encode(GRAPH)
    return dag.x_NA[at : at + 1]


def started(nodes: int) -> ExecutionCheck:
    """A check after so many nodes of the program."""
    check = ExecutionCheck(SCHEMA, ShapeInference())
    check.start(1)
    dag = SCHEMA.encode(GRAPH)
    for at in range(nodes):
        given = dag.edge_index_2E[1] == at
        parents, types = dag.edge_index_2E[0][given], dag.edge_type_E[given]
        assert check.add(codes(at), torch.zeros_like(parents), parents, types).all()
    return check


@pytest.mark.parametrize("nodes", [0, 1, 2, 3])
def test_a_program_may_end_in_its_loss_alone(nodes):
    assert not started(nodes).may_end().any()
    assert started(4).may_end().all()


def test_a_call_that_cannot_run_is_told_at_once():
    """A linear map of a program that has no input yet."""
    check = started(0)
    nothing = torch.zeros(0, dtype=torch.int64)
    assert not check.add(codes(1), nothing, nothing, nothing).any()


def test_a_result_that_nothing_reads_keeps_a_program_from_ending():
    check = started(1)
    one, zero = torch.tensor([0]), torch.tensor([SCHEMA.edge_types.index("0")])
    assert check.add(codes(1), one, torch.tensor([0]), zero).all()
    assert check.add(codes(1), one, torch.tensor([0]), zero).all()
    assert check.add(codes(3), one, torch.tensor([2]), zero).all()
    assert not check.may_end().any()


def test_rows_are_copied_with_all_that_they_hold():
    check = started(4)
    check.select(torch.tensor([0, 0, 0]))
    assert check.may_end().tolist() == [True] * 3


def test_a_drawn_program_has_sizes_as_training_programs_and_as_asked():
    program = drawn_program(GRAPH, SCHEMA.sizes_of_programs, 0, {"w0": 640, "w9": 3})
    assert program.sizes == {"B0": 4, "n0": 8, "w0": 640}
    assert not program.check()


def test_no_table_that_fits_is_refused_with_the_reason():
    weight = {"parameter": ["w0", "a0.-1/h0"], "dtype": "float32"}
    nodes = [NODES[0], {**NODES[1], "arguments": [{"edge": "#"}, weight]}, *NODES[2:]]
    data = {**DATA, "sizes": {**DATA["sizes"], "h0": 3}, "nodes": nodes}
    with pytest.raises(DataError, match="small: is no training step: aten"):
        drawn_program(program_graph(data, "small"), SizeTables(), 0, {})


def test_a_sample_is_a_program_a_graph_and_a_step():
    sample = GeneratedProgram("small", 3, SCHEMA.encode(GRAPH), False, SCHEMA)
    assert isinstance(sample.program, Program)
    assert sample.graph.conditions["w0"] == 16.0
    assert sample.program.step(data=4).workload().num_ranks == 4
    again = GeneratedProgram("small", 3, SCHEMA.encode(GRAPH), False, SCHEMA)
    assert again.program == sample.program


@pytest.mark.parametrize("sizes", [{"x0": 4}, {"w0": 0}, {"w0": 2.5}, {"w0": 1 << 41}])
def test_sizes_that_no_table_has_are_refused(sizes):
    with pytest.raises(UsageError, match="entries of a table of sizes"):
        GenerationSettings(sizes=sizes)


def test_results_are_the_same_whatever_the_table_of_the_seed():
    tables = [drawn_program(GRAPH, SizeTables(), seed, {}).sizes["w0"] for seed in range(20)]
    assert len(set(tables)) > 1
    assert np.all(np.array(tables) > 0)
