"""``ld.write``: which suffix makes which file, for each kind of thing."""

import json
from pathlib import Path

import pytest
from raw_graphs import chain
from small_workloads import collective, compute, job

import layerdag as ld
from layerdag.datasets import GraphDataset
from layerdag.errors import UsageError
from layerdag.sampling import GeneratedGraph
from layerdag.traces.chakra import read_trace

ALONE = job((compute(1), collective(2, 1)))
PAIR = job(*[(compute(1), collective(2, 1))] * 2)


@pytest.fixture
def sampled() -> GeneratedGraph:
    data = GraphDataset.build("toy", "flow", {"train": [chain("g", "aba"), chain("h", "ab")]})
    return GeneratedGraph("sample", 3, data.graphs["train"][0], False, data.schema)


@pytest.mark.parametrize("name", ["g.graphml", "g.json", "g.dot", "g.wf.json"])
def test_each_format_of_graphs_is_read_back(tmp_path: Path, name: str) -> None:
    ld.write(chain("g", "abc"), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    back = ld.read(tmp_path / name)
    assert back.categories["kind"] == ["a", "b", "c"]
    assert back.edge_index_2E.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("name", ["s.graphml", "s.json", "s.dot", "s.wf.json"])
def test_a_sample_is_written_as_its_graph(
    tmp_path: Path, name: str, sampled: GeneratedGraph
) -> None:
    ld.write(sampled, tmp_path / name)
    ld.write(sampled.graph, tmp_path / f"own-{name}")
    assert (tmp_path / name).read_bytes() == (tmp_path / f"own-{name}").read_bytes()


def test_json_is_our_own_and_wf_json_that_of_workflows(tmp_path: Path) -> None:
    ld.write(chain("g", "ab"), tmp_path / "g.json")
    ld.write(chain("g", "ab"), tmp_path / "g.wf.json")
    assert json.loads((tmp_path / "g.json").read_text())["format"] == "layerdag-graph-1"
    assert json.loads((tmp_path / "g.wf.json").read_text())["schemaVersion"] == "1.5"


def test_a_prefix_makes_a_file_for_each_rank(tmp_path: Path) -> None:
    ld.write(PAIR, str(tmp_path / "runs" / "job"))
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert {"job.0.et", "job.1.et"} <= names
    assert ld.read(tmp_path / "runs" / "job").num_ranks == 2


def test_one_rank_is_one_trace(tmp_path: Path) -> None:
    ld.write(ALONE, tmp_path / "one.et")
    assert read_trace(tmp_path / "one.et").id_N.tolist() == [1, 2]


def test_a_workload_named_as_a_workflow_is_our_own_json(tmp_path: Path) -> None:
    """Traces are no workflow; the last suffix counts."""
    ld.write(PAIR, tmp_path / "w.wf.json")
    assert ld.read(tmp_path / "w.wf.json").num_ranks == 2


@pytest.mark.parametrize("name", ["job.et", "job.graphml"])
def test_the_prefix_to_name_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        ld.write(PAIR, tmp_path / name)
    assert str(caught.value) == (
        f"{tmp_path / name}: 2 ranks need a file each; name the prefix {tmp_path / 'job'}, or a "
        ".json file."
    )


@pytest.mark.parametrize("name", ["g", "g.txt", "g.et", "g.GRAPHML"])
def test_a_graph_needs_a_suffix_that_is_known(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"is written as \.graphml, \.dot, \.wf\.json or \.json"):
        ld.write(chain("g", "ab"), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["g.graphml", "g.json", "t.et"])
def test_a_folder_that_is_a_file_is_no_place(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    thing = ALONE if name == "t.et" else chain("g", "ab")
    with pytest.raises(OSError, match="file"):
        ld.write(thing, tmp_path / "file" / name)
    assert (tmp_path / "file").read_text() == "mine"
