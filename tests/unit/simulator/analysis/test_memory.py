"""Peak local memory by liveness, worked out by hand."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from simulator_traces import comp, node, ring, system, ticks, workload

from layerdag.cli import main
from layerdag.errors import SimulationError
from layerdag.simulator import Cluster, simulate
from layerdag.simulator.analysis import local_memory
from layerdag.simulator.analysis._memory import LocalMemory
from layerdag.traces import Attribute, NodeType, Wire, write_workload
from layerdag.traces.chakra import NodeSpec

Spans = list[tuple[int, int]]


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


def slow_peak(nodes: list[tuple[NodeSpec, dict[str, int], dict[str, int]]], spans: Spans) -> int:
    """Return the peak by adding up what is live at every start of a tensor.

    Args:
        nodes: Nodes in ascending id, with the tensors that each reads and writes.
        spans: (issue, finish) of each node.
    """
    end = max(finish for _, finish in spans)
    live = []
    for name in {name for _, *lists in nodes for tensors in lists for name in tensors}:
        readers = [row for row, (_, reads, _) in enumerate(nodes) if name in reads]
        writers = [row for row, (_, _, writes) in enumerate(nodes) if name in writes]
        made = bool(writers) and (not readers or writers[0] < readers[0])
        start = spans[writers[0]][0] if made else 0
        stop = max(spans[row][1] for row in readers + writers) if made and readers else end
        size = max(tensors.get(name, 0) for _, *lists in nodes for tensors in lists)
        live.append((start, stop, size))
    return max(
        sum(size for start, stop, size in live if start <= time < stop) for time, _, _ in live
    )


def some_tensors(rng: np.random.Generator) -> dict[str, int]:
    """Return a few of five tensors; a tensor may be stated with two sizes."""
    names = rng.permutation(5)[: int(rng.integers(1, 4))].tolist()
    return {f"t{name}": 10**name * int(rng.integers(1, 3)) for name in names}


@given(st.integers(0, 2**32 - 1))
@tried(20)
def test_the_peak_is_that_of_a_count_at_every_event(seed):
    rng = np.random.default_rng(seed)
    nodes = []
    for id in range(int(rng.integers(1, 7))):
        deps = tuple(sorted(rng.permutation(id)[: int(rng.integers(2))].tolist()))
        plain = comp(id, int(rng.integers(1, 4)), deps, is_cpu_op=bool(rng.integers(2)))
        lists = some_tensors(rng), some_tensors(rng)
        flat = [tuple(str(w) for pair in part.items() for w in pair) for part in lists]
        attributes = (*plain.attributes, *tensors(*flat))
        nodes.append((dataclasses.replace(plain, attributes=attributes), *lists))
    result = simulate(workload([spec for spec, *_ in nodes]), Cluster(ring(1), system()))
    memory = local_memory(result)
    assert memory.peak_bytes_R.tolist() == [slow_peak(nodes, ticks(result))]


def test_what_ends_is_freed_before_what_begins_in_the_same_tick():
    # a (100) ends with node 1 at 2000, when node 2 writes d (90): never 190 together.
    nodes = [layer(0, (), "", "a:100"), layer(1, (0,), "a:100", ""), layer(2, (1,), "", "d:90")]
    memory = run(nodes)
    assert (memory.peak_bytes_R.tolist(), memory.peak_ns_R.tolist()) == ([100], [0])


def test_a_tensor_of_two_sizes_counts_with_the_larger():
    nodes = [layer(0, (), "", "a:100"), layer(1, (0,), "a:130", "")]
    assert run(nodes).peak_bytes_R.tolist() == [130]


def test_a_rank_that_only_skips_nodes_holds_nothing():
    assert run([node(0, NodeType.INVALID, tensor_size=8)], CHAIN).peak_bytes_R.tolist() == [0, 140]


def test_the_line_names_the_rank_with_the_highest_peak_in_gigabytes():
    big = [comp(0, 1, tensor_size=2_500_000_000)]
    line = run(CHAIN, big).line()
    assert line.startswith("peak local memory 2.500 GB on rank 1, a lower bound (50% of nodes")
    assert "lower bound" not in run(CHAIN).line()


def test_the_summary_is_by_rank():
    assert run(CHAIN, CHAIN[:1]).summary() == {
        "peak_memory_bytes": {"0": 140, "1": 110},
        "peak_memory_at": {"0": 1000, "1": 0},
        "nodes_with_tensors": {"0": 1.0, "1": 1.0},
    }


def test_the_complaint_counts_the_ranks_above_the_capacity():
    told = run(CHAIN, CHAIN[:1]).over(100)
    assert "(2 of 2 ranks exceed it)" in told
    assert "more than the capacity of 100 bytes" in told


def test_a_node_that_states_no_bytes_touches_none():
    assert run([comp(0, 1), comp(1, 1, (0,))]).peak_bytes_R.tolist() == [0]
    assert run([comp(0, 1, tensor_size=7), comp(1, 1, (0,))]).peak_bytes_R.tolist() == [7]


@pytest.mark.parametrize(
    ("size", "allowed"), [("0", True), (str(2**61), True), (str(2**62), False), ("-1", False)]
)
def test_a_tensor_has_less_than_two_to_the_62_bytes(size, allowed):
    nodes = [layer(0, (), f"w:{size}", "a:1")]
    if allowed:
        assert run(nodes).peak_bytes_R.tolist() == [int(size) + 1]
        return
    with pytest.raises(SimulationError, match="node 0 has an attribute 'inputs' that is no string"):
        run(nodes)
