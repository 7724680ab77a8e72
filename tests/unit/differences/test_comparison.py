"""``ld.diff`` and ``layerdag diff``: paths, simulation, exit codes, JSON and page."""

import json
from dataclasses import replace

import numpy as np
import pytest
from raw_graphs import chain
from simulator_traces import all_reduce, comp, recv, send, workload

import layerdag as ld
from layerdag.cli.main import main
from layerdag.differences.alignment import common_subsequence
from layerdag.differences.comparison import compare_aligned
from layerdag.differences.difference import Difference, lines
from layerdag.errors import TraceError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import Workload


def job(size: int) -> Workload:
    return workload(*[[comp(0, 5, num_ops=1), all_reduce(1, size, (0,))]] * 2)


@pytest.fixture
def prefixes(tmp_path) -> tuple[str, str]:
    for name, size in (("a", 1 << 20), ("b", 1 << 22)):
        ld.write_workload(job(size), tmp_path / name)
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_makespans_are_compared_on_a_cluster():
    found = ld.diff(job(1 << 20), job(1 << 22), cluster=ld.Cluster("small"))
    makespan = found.times[-1]
    assert makespan.name == "simulated makespan"
    assert makespan.a is not None
    assert makespan.b is not None
    assert makespan.a < makespan.b
    wanted = ld.simulate(job(1 << 20), ld.Cluster("small")).makespan_ns
    assert makespan.a == wanted / 1000


def test_json_and_page(prefixes, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["diff", *prefixes, "--json", "--html", str(page), "--simulate", "small"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["differing"] == ["time", "communication"]
    assert told == json.loads(page.with_suffix(".json").read_text())
    text = page.read_text()
    assert "<title>" in text
    assert "ALL_REDUCE" in text
    assert "simulated makespan" in text
    assert "http" not in text.replace("http-equiv", "")
    assert main(["diff", *prefixes, "--all", "--html", str(page)]) == 1  # its own page


def test_a_page_never_replaces_something_else(prefixes, tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert main(["diff", *prefixes, "--html", str(page)]) == 2
    assert "never replaced" in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert main(["diff", *prefixes, "--html", str(tmp_path / "page.txt")]) == 2


def named(node: NodeSpec, name: str) -> NodeSpec:
    return replace(node, name=name)


def layers(count: int, *, ops: int = 8, size: int = 64, us: int = 5) -> list[NodeSpec]:
    """A chain of layers, each of three operators and a collective."""
    nodes: list[NodeSpec] = []
    for layer in range(count):
        at = 4 * layer
        before = (at - 1,) if layer else ()
        nodes += [
            named(comp(at, us, before, num_ops=ops, tensor_size=256), f"mm.{layer}"),
            named(comp(at + 1, us, (at,), num_ops=ops), f"add.{layer}"),
            named(comp(at + 2, us, (at + 1,)), f"act.{layer}"),
            named(all_reduce(at + 3, size, (at + 2,)), f"sum.{layer}"),
        ]
    return nodes


def job_diff(nodes: list[NodeSpec], ranks: int = 2) -> Workload:
    return workload(*[nodes] * ranks)


def test_a_job_equals_itself():
    found = compare_aligned(job_diff(layers(3)), job_diff(layers(3)))
    assert found.equal
    assert found.differing == ()
    assert lines(found) == ["<memory> and <memory> are equal: 2 ranks of 12 nodes aligned"]


def test_ids_and_numbers_in_names_do_not_count():
    other = [
        replace(
            node,
            id=node.id + 100,
            name=node.name.replace(".", ".L1"),
            data_deps=tuple(dep + 100 for dep in node.data_deps),
        )
        for node in layers(3)
    ]
    assert compare_aligned(job_diff(layers(3)), job_diff(other)).differing == (
        "operators",
        "structure",
    )
    renumbered = [replace(node, name=node.name.replace(".L1", ".")) for node in other]
    assert compare_aligned(job_diff(layers(3)), job_diff(renumbered)).equal


def test_more_layers_are_a_block_that_repeats_more_often():
    found = compare_aligned(job_diff(layers(3)), job_diff(layers(5)))
    (program,) = found.programs
    assert program.nodes == (12, 20)
    assert program.aligned == 12
    (block,) = found.blocks
    assert block.count == (3, 5)
    assert block.operators == {"act.#": 1, "add.#": 1, "mm.#": 1, "sum.# [ALL_REDUCE]": 1}
    assert {stretch.side for stretch in found.stretches} == {"b"}
    assert sum(stretch.length for stretch in found.stretches) == 8
    (row,) = found.communication
    assert (row.kind, row.ranks, row.count, row.bytes) == ("ALL_REDUCE", 2, (3, 5), (192, 320))
    assert found.times[0].name == "compute"
    assert (found.times[0].a, found.times[0].b) == (45.0, 75.0)
    critical = found.times[2]
    assert (critical.name, critical.a, critical.b) == ("critical path", 45.0, 75.0)


def test_other_figures_of_an_operator_are_told_by_operator():
    found = compare_aligned(job_diff(layers(3)), job_diff(layers(3, ops=9)))
    assert found.differing == ("operators",)
    mm = next(operator for operator in found.operators if operator.name == "mm.#")
    assert mm.numbers["flops"] == (24.0, 27.0)
    assert mm.changed == 3
    assert "flops 24 -> 27" in "\n".join(lines(found))


def test_other_times_are_no_other_operators_and_can_be_ignored():
    found = compare_aligned(job_diff(layers(3)), job_diff(layers(3, us=6)))
    assert found.differing == ("time",)
    ignoring = compare_aligned(job_diff(layers(3)), job_diff(layers(3, us=6)), ignore=("time",))
    assert ignoring.equal
    assert lines(ignoring)[2] == "differ in nothing (not counted: time)"


def test_swapped_times_differ_though_their_sum_does_not():
    nodes = [replace(node, duration_us=us) for us, node in enumerate(layers(1))]
    other = [replace(node, duration_us=3 - us) for us, node in enumerate(layers(1))]
    found = compare_aligned(job_diff(nodes[:3]), job_diff(other[:3]))
    assert found.differing == ("time",)


def test_collectives_that_trade_their_sizes_differ_though_the_sum_does_not():
    small_first, large_first = (
        [all_reduce(0, sizes[0]), comp(1, 5, (0,)), all_reduce(2, sizes[1], (1,))]
        for sizes in ((64, 256), (256, 64))
    )
    found = compare_aligned(job_diff(small_first), job_diff(large_first))
    assert found.differing == ("communication",)
    assert found.programs[0].resized == 2
    assert lines(found)[-1].split() == ["communication", "2", "aligned", "with", "other", "bytes"]


def test_a_rewired_dependency_is_found():
    other = layers(3)
    other[6] = replace(other[6], data_deps=(4,))
    found = compare_aligned(job_diff(layers(3)), job_diff(other))
    assert found.differing == ("structure", "time")  # the critical path is shorter
    assert found.programs[0].rewired == (1, 1)
    assert "between aligned nodes: 1 only in A, 1 only in B" in "\n".join(lines(found))


def test_branches_in_another_order_are_the_same_program():
    root, left, right = comp(0, 1), comp(1, 1, (0,)), comp(2, 1, (0,))
    tails = comp(3, 1, (1,)), comp(4, 1, (2,))
    a = [named(n, x) for n, x in zip((root, left, right, *tails), "rlmxy", strict=True)]
    b = [a[0], replace(a[2], id=1), replace(a[1], id=2), replace(a[4], id=3, data_deps=(1,)),
        replace(a[3], id=4, data_deps=(2,))]  # fmt: skip
    found = compare_aligned(job_diff(a), job_diff(b), ignore=("time",))
    assert found.equal
    assert found.programs[0].moved > 0


def test_more_ranks_of_one_program_differ_in_ranks_and_groups_alone():
    found = compare_aligned(job_diff(layers(2)), job_diff(layers(2), ranks=4))
    assert found.ranks == (2, 4)
    assert found.differing == ("structure", "communication")
    assert [program.name for program in found.programs] == ["ranks 0-1"]
    assert {(row.ranks, row.count) for row in found.communication} == {(2, (2, 0)), (4, (0, 2))}


def test_a_stage_that_only_one_job_has_is_a_program_of_its_own():
    first = [comp(0, 1), send(1, 1, 8, (0,))]
    last = [recv(0, 0, 8), comp(1, 1, (0,))]
    found = compare_aligned(workload([comp(0, 1)]), workload(first, last))
    assert [(p.name, p.nodes) for p in found.programs] == [("rank 0", (1, 2)), ("rank 1", (0, 2))]
    (row,) = found.communication
    assert (row.kind, row.count, row.bytes) == ("message", (0, 1), (0, 8))


def test_one_rank_of_a_job_can_be_compared_alone():
    """Its groups and partners are not there, so that it stands for itself."""
    alone = workload([comp(0, 1), all_reduce(1, 8, (0,), pg_name="7")])
    assert compare_aligned(alone, alone).equal


def test_dependencies_in_a_circle_are_refused():
    with pytest.raises(TraceError, match="wait for each other"):
        compare_aligned(workload([comp(0, 1, (1,)), comp(1, 1, (0,))]), workload([comp(0, 1)]))


def test_a_rough_alignment_is_told_once(monkeypatch):
    monkeypatch.setattr(
        "layerdag.differences.alignment.common_subsequence",
        lambda a, b: (common_subsequence(a, b)[0], False),
    )
    found = compare_aligned(job_diff(layers(1)), job_diff(layers(2)))
    (note,) = found.notes
    assert note.startswith("ranks 0-1: so much differs")
    assert lines(found)[-1] == f"note: {note}"


def test_a_job_without_ranks_is_refused():
    empty = Workload((), {}, "empty")
    with pytest.raises(TraceError, match="empty: the second job has no ranks"):
        compare_aligned(job_diff(layers(1)), empty)
    with pytest.raises(TraceError, match="empty: the first job has no ranks"):
        compare_aligned(empty, empty)


def shuffled(graph: AttributedGraph, seed: int) -> AttributedGraph:
    order_N = np.random.default_rng(seed).permutation(graph.num_nodes)
    position_N = np.argsort(order_N)
    kinds = graph.categories["kind"]
    return replace(
        graph,
        categories={"kind": [kinds[node] for node in order_N]},
        edge_index_2E=position_N[graph.edge_index_2E],
    )


def test_a_graph_with_its_nodes_in_another_order_is_equal():
    rng = np.random.default_rng(0)
    source_E, target_E = np.triu_indices(24, 1)
    edges_2E = np.stack([source_E, target_E])[:, rng.random(source_E.size) < 0.12]
    graph = replace(
        chain("g", "abc" * 8),
        edge_index_2E=edges_2E,
        edge_type_E=np.zeros(edges_2E.shape[1], dtype=np.int64),
    )
    for seed in range(5):
        assert compare_aligned(graph, shuffled(graph, seed)).equal
    cut = replace(graph, edge_index_2E=edges_2E[:, 1:], edge_type_E=graph.edge_type_E[1:])
    assert compare_aligned(graph, shuffled(cut, 1)).differing == ("structure",)


def test_labels_and_numbers_of_graphs_are_compared():
    a = replace(chain("a", "abb", label=1.0, device="x"), numbers={"work": np.array([1.0, 2, 3])})
    b = replace(chain("b", "abb", label=2.0, device="x"), numbers={"work": np.array([1.0, 2, 9])})
    found = compare_aligned(a, b)
    assert found.differing == ("operators", "labels")
    assert found.labels == {"label": (1.0, 2.0)}
    assert "b: work 5 -> 11; 1 aligned with other figures" in "\n".join(lines(found))


def test_a_label_without_a_value_equals_itself_and_no_other():
    nothing, one = chain("g", "ab", label=float("nan")), chain("g", "ab", label=1.0)
    assert compare_aligned(nothing, nothing).equal
    assert compare_aligned(nothing, one).differing == ("labels",)
    assert compare_aligned(nothing, chain("g", "ab")).differing == ("labels",)


def test_whole_numbers_of_graphs_go_into_json():
    a, b = (
        replace(chain("g", "ab"), numbers={"work": np.array(numbers)})
        for numbers in ([1, 2], [1, 3])
    )
    found = json.loads(json.dumps(compare_aligned(a, b).summary()))
    (changed,) = [row for row in found["operators"] if row["changed"]]
    assert changed["numbers"]["work"] == [2.0, 3.0]


def test_edges_of_another_type_are_other_edges():
    data = chain("g", "abc")
    control = replace(data, edge_type_names=("control",))
    mixed = replace(
        data, edge_type_names=("control", "data"), edge_type_E=np.array([1, 0], dtype=np.int64)
    )
    assert compare_aligned(data, control).programs[0].rewired == (2, 2)
    assert compare_aligned(data, mixed).programs[0].rewired == (1, 1)
    renamed = replace(mixed, edge_type_E=np.array([1, 1], dtype=np.int64))
    assert compare_aligned(data, renamed).equal  # positions differ, names do not


def test_swapping_a_and_b_swaps_every_figure():
    forth, back = (
        compare_aligned(job_diff(layers(2)), job_diff(layers(4))),
        compare_aligned(job_diff(layers(4)), job_diff(layers(2))),
    )
    assert forth.differing == back.differing
    assert forth.programs[0].nodes == back.programs[0].nodes[::-1]
    assert {o.name: o.count for o in forth.operators} == {
        o.name: o.count[::-1] for o in back.operators
    }
    assert [(f.a, f.b) for f in forth.times[:3]] == [(f.b, f.a) for f in back.times[:3]]
    assert [row.bytes for row in forth.communication] == [
        row.bytes[::-1] for row in back.communication
    ]


def test_every_operator_that_computes_is_counted_in_both():
    found = compare_aligned(job_diff(layers(2)), job_diff(layers(3)))
    assert sum(operator.count[0] for operator in found.operators) == 2 * 3  # without collectives
    assert sum(operator.count[1] for operator in found.operators) == 3 * 3


def test_makespans_are_told_in_microseconds():
    found = compare_aligned(job_diff(layers(1)), job_diff(layers(1)), makespans_ns=(5_000, 7_500))
    assert found.differing == ("time",)
    assert (found.times[-1].a, found.times[-1].b) == (5.0, 7.5)
    assert "simulated makespan 5 -> 7.5 us (+50.0 %)" in str(found)


def test_jobs_without_recorded_times_have_no_figures_of_time():
    assert compare_aligned(job_diff(layers(1, us=0)), job_diff(layers(2, us=0))).times == ()


def test_ranks_apart_are_told_by_their_number_and_the_first_of_them():
    """Ranks 0 and 2 run one program, ranks 1 and 3 another, without partners in the job."""
    even, odd = [comp(0, 1), send(1, 9, 8, (0,))], [comp(0, 1)]
    both = workload(even, odd, even, odd)
    names = [program.name for program in compare_aligned(both, both).programs]
    assert names == ["2 ranks, the first is 0", "2 ranks, the first is 1"]


def test_a_collective_counts_once_for_each_of_its_groups():
    nodes = [[all_reduce(0, 64, pg_name=name)] for name in ("1", "1", "2", "2")]
    groups = {"1": (0, 1), "2": (2, 3)}
    split = workload(*nodes, groups=groups)
    whole = workload(*[[all_reduce(0, 64)]] * 4)
    rows = {
        (row.ranks, row.count, row.bytes) for row in compare_aligned(split, whole).communication
    }
    assert rows == {(2, (2, 0), (128, 0)), (4, (0, 1), (0, 64))}


def test_the_text_says_how_much_it_leaves_out_and_the_summary_has_it_all():
    a = [named(comp(i, 1), f"op{chr(97 + i)}") for i in range(8)]
    found = compare_aligned(job_diff(a), job_diff([comp(0, 1)]))
    told = lines(found)
    assert len(told) < 14
    assert any(line.endswith("; 6 more") for line in told)
    assert str(found) == "\n".join(told)
    assert len(lines(found, None)) > len(told)
    summary = found.summary()
    assert summary["equal"] is False
    assert len(summary["operators"]) == 9
    assert isinstance(found, Difference)
