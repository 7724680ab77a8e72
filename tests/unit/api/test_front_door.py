"""Laws of the front door: what is written comes back, and what is refused says why."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from random_jobs import random_job
from raw_graphs import chain
from small_workloads import collective, compute, job

import layerdag as ld
from layerdag.codec import AttributedGraph
from layerdag.errors import DataError, GraphError, UsageError
from layerdag.sampling import GeneratedGraph
from layerdag.traces.chakra import encode_trace

TWO_RANKS = job(*[(compute(1), collective(2, 1))] * 2)


@given(st.integers(0, 2**32 - 1), st.sampled_from([".json", ".graphml"]))
@tried(10)
def test_graphs_come_back_from_either_format(
    tmp_path_factory: pytest.TempPathFactory, seed: int, suffix: str
) -> None:
    graph = random_job(seed % 1000, 2, layers=3)
    path = tmp_path_factory.mktemp("law") / f"g{suffix}"
    ld.write(graph, path)
    back = ld.read(path)
    assert isinstance(back, AttributedGraph)
    order = np.lexsort(graph.edge_index_2E)
    again = np.lexsort(back.edge_index_2E)
    np.testing.assert_array_equal(back.edge_index_2E[:, again], graph.edge_index_2E[:, order])
    assert back.conditions["world_size"] in ("2", 2.0)
    np.testing.assert_allclose(back.numbers["duration"], graph.numbers["duration"])
    assert [back.edge_type_names[code] for code in back.edge_type_E[again]] == [
        graph.edge_type_names[code] for code in graph.edge_type_E[order]
    ]
    # Digits are numbers for GraphML, whose readers guess; other words stay words.
    assert list(back.categories["op"]) == list(graph.categories["op"])


@pytest.mark.parametrize("suffix", ["", ".json"])
def test_workloads_come_back_byte_by_byte(tmp_path: Path, suffix: str) -> None:
    ld.write(TWO_RANKS, tmp_path / f"job{suffix}")
    back = ld.read(tmp_path / f"job{suffix}")
    assert isinstance(back, ld.Workload)
    assert [encode_trace(t) for t in back.traces] == [encode_trace(t) for t in TWO_RANKS.traces]
    assert back.groups == TWO_RANKS.groups


@pytest.mark.parametrize(
    ("thing", "name", "words"),
    [
        (TWO_RANKS, "x.et", r"2 ranks need a file each; name the prefix .*x, or a \.json file"),
        (TWO_RANKS, "x.graphml", "2 ranks need a file each"),
        (TWO_RANKS.traces[0], "x.json", r"a trace is written as \.et; name such a file"),
        (TWO_RANKS.traces[0], "x", r"a trace is written as \.et"),
        (chain("g", "ab"), "x", r"a graph is written as \.graphml, \.dot, \.wf\.json or \.json"),
        (chain("g", "ab"), "x.et", r"a graph is written as \.graphml, \.dot, \.wf\.json or \.json"),
    ],
)
def test_suffixes_that_do_not_fit_are_refused_and_nothing_is_written(
    tmp_path: Path, thing: object, name: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        ld.write(thing, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_sample_of_a_flow_graph_is_no_job(tmp_path: Path) -> None:
    data = ld.GraphDataset.build("chains", "flow", {"train": [chain("g", "abc"), chain("h", "ab")]})
    sample = GeneratedGraph("s", 0, data.graphs["train"][0], False, data.schema)
    ld.write(sample, tmp_path / "s.json")
    assert ld.read(tmp_path / "s.json").categories["kind"] == ["a", "b", "c"]
    with pytest.raises(DataError):
        ld.write(sample, tmp_path / "s")


@pytest.mark.parametrize("name", ["gone", "gone.et", "gone.json", "gone.graphml"])
def test_what_is_not_there_is_told_by_name(tmp_path: Path, name: str) -> None:
    for call in (ld.read, ld.validate):
        with pytest.raises(DataError, match="gone"):
            call(tmp_path / name)


def test_findings_of_several_things_are_those_of_each_in_order() -> None:
    broken = job((compute(1, 7),))
    cyclic = chain("loop", "ab")
    cyclic.edge_index_2E[:] = [[0], [0]]
    each: list[Callable[[], tuple[ld.Finding, ...]]] = [
        lambda: ld.validate(broken),
        lambda: ld.validate(cyclic),
    ]
    assert ld.validate([broken, cyclic]) == each[0]() + each[1]()
    assert ld.validate([]) == ()
    assert ld.validate(TWO_RANKS) == ()


@pytest.mark.parametrize("part", ["train", "val"])
def test_an_empty_part_is_named_before_anything_is_written(tmp_path: Path, part: str) -> None:
    graphs = [chain(f"g{i}", "ab" * (i + 1), label=float(i)) for i in range(6)]
    data = ld.GraphDataset.build("toy", "flow", {"train": graphs, "val": graphs[:2]})
    emptied = ld.GraphDataset(
        "toy", data.schema, {**data.graphs, part: ()}, {**data.names, part: ()}
    )
    with pytest.raises(GraphError, match=f"toy: the {part} part is empty|no graph"):
        ld.train(emptied, out=tmp_path / "run", width=32, depth=1)
    assert not (tmp_path / "run" / "best").exists()
