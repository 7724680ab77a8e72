from pathlib import Path

import pytest
from raw_graphs import chain
from small_workloads import collective, compute, job
from tiny_checkpoints import chain_checkpoint, job_checkpoint

import layerdag as ld
from layerdag.codec import AttributedGraph
from layerdag.errors import UsageError

TWO_RANKS = job(*[(compute(1), collective(2, 1))] * 2)


@pytest.mark.parametrize("name", ["run", "run.json"])
def test_a_workload_comes_back(tmp_path: Path, name: str) -> None:
    ld.write(TWO_RANKS, tmp_path / name)
    back = ld.read(tmp_path / name)
    assert isinstance(back, ld.Workload)
    assert [trace.num_nodes for trace in back.traces] == [2, 2]


def test_one_trace_is_one_file(tmp_path: Path) -> None:
    alone = job((compute(1),))
    ld.write(alone, tmp_path / "a.et")
    ld.write(alone.traces[0], tmp_path / "b.et")
    assert (tmp_path / "a.et").read_bytes() == (tmp_path / "b.et").read_bytes()


@pytest.mark.parametrize("name", ["g.graphml", "g.json"])
def test_a_graph_comes_back(tmp_path: Path, name: str) -> None:
    ld.write(chain("g", "abc"), tmp_path / name)
    back = ld.read(tmp_path / name)
    assert isinstance(back, AttributedGraph)
    assert back.categories["kind"] == ["a", "b", "c"]


def test_a_sample_is_written_as_what_the_suffix_says(tmp_path: Path) -> None:
    (sampled,) = ld.sample(job_checkpoint(tmp_path / "jobs"), num=1, max_nodes=10)
    ld.write(sampled, tmp_path / "s")
    ld.write(sampled, tmp_path / "s.graphml")
    assert isinstance(ld.read(tmp_path / "s"), ld.Workload)
    assert isinstance(ld.read(tmp_path / "s.graphml"), AttributedGraph)
    (chained,) = ld.sample(chain_checkpoint(tmp_path / "chains"), num=1, max_nodes=6)
    ld.write(chained, tmp_path / "c.json")
    assert isinstance(ld.read(tmp_path / "c.json"), AttributedGraph)


@pytest.mark.parametrize(
    ("thing", "name", "message"),
    [
        (TWO_RANKS, "run.et", "2 ranks need a file each; name the prefix"),
        (chain("g", "ab"), "g.et", "as .graphml, .dot"),
        (TWO_RANKS.traces[0], "t.json", "a trace is written as .et"),
    ],
)
def test_a_suffix_that_does_not_fit_is_refused(
    tmp_path: Path, thing: object, name: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ld.write(thing, tmp_path / name)
    assert not list(tmp_path.iterdir())
