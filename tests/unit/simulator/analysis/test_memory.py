"""Peak local memory by liveness, worked out by hand."""

import json

import pytest
from simulator_traces import comp, ring, system, workload

from layerdag.cli import main
from layerdag.errors import SimulationError
from layerdag.simulator import Cluster, simulate
from layerdag.simulator.analysis import local_memory
from layerdag.simulator.analysis._memory import LocalMemory
from layerdag.traces import Attribute, Wire, write_workload
from layerdag.traces.chakra import NodeSpec


def tensors(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> tuple[Attribute, ...]:
    """Return the two lists of a node."""
    lists = (("inputs", inputs), ("outputs", outputs))
    return tuple(Attribute(name, Wire.STRING + 1, value) for name, value in lists)


def layer(id: int, deps: tuple[int, ...], reads: str, writes: str) -> NodeSpec:
    """Return a node of 1 us; tensors are written "name:bytes name:bytes"."""
    words = [tuple(text.replace(":", " ").split()) for text in (reads, writes)]
    return NodeSpec(**{**vars(comp(id, 1, deps)), "attributes": tensors(*words)})


# ticks          0..1000   1000..2000   2000..3000
# w  (weight)      10         10           10        not written: always there
# a               100        100                     written by 0, read by 1
# b                           30           30        written by 1, read by 2
# c                                         5        written by 2, read by none: stays
CHAIN = [
    layer(0, (), "w:10", "a:100"),
    layer(1, (0,), "a:100.0", "b:30"),
    layer(2, (1,), "b:30 w:10", "c:5"),
]


def run(*ranks: list[NodeSpec]) -> LocalMemory:
    result = simulate(workload(*ranks), Cluster(ring(len(ranks)), system()))
    return local_memory(result)


def test_tensors_live_from_their_writer_to_their_last_reader():
    memory = run(CHAIN, CHAIN[:1])
    assert memory.peak_bytes_R.tolist() == [140, 110]
    assert memory.peak_ns_R.tolist() == [1000, 0]
    assert memory.listed_R.tolist() == [1.0, 1.0]


def test_weights_that_are_updated_are_always_there():
    # w is read by 0 and rewritten in place by 2: it is held beside a (100) in both other nodes.
    update = [*CHAIN[:2], layer(2, (1,), "b:30 w:10", "w:10")]
    assert run(update, update).peak_bytes_R.tolist() == [140, 140]


def test_what_no_node_reads_is_held_to_the_end_of_the_rank():
    # r (500) is written by 0 and read by none: it is still there beside a and b at 2000..3000.
    nodes = [
        layer(0, (), "w:10", "r:500"),
        layer(1, (0,), "w:10", "a:100"),
        layer(2, (1,), "a:100", "b:30"),
    ]
    memory = run(nodes, nodes)
    assert memory.peak_bytes_R.tolist() == [640, 640]
    assert memory.peak_ns_R.tolist() == [2000, 2000]


def test_nodes_without_lists_hold_their_tensor_size_while_they_run():
    memory = run([comp(0, 1, tensor_size=70), comp(1, 1, (0,), tensor_size=90)], CHAIN[:1])
    assert memory.peak_bytes_R.tolist() == [90, 110]
    assert memory.listed_R.tolist() == [0.0, 1.0]
    assert "a lower bound" in memory.line()


def test_capacity_is_told_for_the_first_rank_above_it():
    memory = run(CHAIN, CHAIN[:1])
    assert memory.over(140) == ""
    assert "rank 0 holds 140 bytes at 1000 ns" in memory.over(139)


def test_lists_that_are_no_pairs_are_errors():
    for wrong in ("w", "w:-1", "w:many", "w:nan"):
        with pytest.raises(SimulationError, match=r"node 0 has an attribute 'inputs'"):
            run([layer(0, (), wrong, "")], CHAIN)


def test_capacity_is_an_error_or_a_warning(tmp_path, capsys):
    write_workload(workload(CHAIN, CHAIN), tmp_path / "w")
    words = ["simulate", f"--workload={tmp_path / 'w'}", "--preset=small", "--json=-"]
    assert main([*words, "--report"]) == 0
    assert json.loads(capsys.readouterr().out)["peak_memory_bytes"] == {"0": 140, "1": 140}
    assert main([*words, "--memory-capacity=1e-7"]) == 1
    assert "more than the capacity of 100 bytes" in capsys.readouterr().err
    assert main([*words, "--memory-capacity=nan"]) == 2
    assert "--memory-capacity is nan" in capsys.readouterr().err
    assert main([*words, "--memory-capacity=1e-7", "--over-capacity=warn"]) == 0
    told = capsys.readouterr()
    assert "warning: rank 0" in told.err
    assert json.loads(told.out)["peak_memory_at"]["1"] == 1000
