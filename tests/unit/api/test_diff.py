"""``ld.diff`` and ``layerdag diff``: paths, simulation, exit codes, JSON and page."""

import json
from pathlib import Path

import pytest
from simulator_traces import all_reduce, comp, workload

import layerdag as ld
from layerdag.cli import main
from layerdag.errors import UsageError
from layerdag.traces import Workload


def job(size: int) -> Workload:
    return workload(*[[comp(0, 5, num_ops=1), all_reduce(1, size, (0,))]] * 2)


@pytest.fixture
def prefixes(tmp_path: Path) -> tuple[str, str]:
    for name, size in (("a", 1 << 20), ("b", 1 << 22)):
        ld.write_workload(job(size), tmp_path / name)
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_makespans_are_compared_on_a_cluster() -> None:
    found = ld.diff(job(1 << 20), job(1 << 22), cluster=ld.Cluster.preset("small"))
    makespan = found.times[-1]
    assert makespan.name == "simulated makespan"
    assert makespan.a is not None
    assert makespan.b is not None
    assert makespan.a < makespan.b
    wanted = ld.simulate(job(1 << 20), ld.Cluster.preset("small")).makespan_ns
    assert makespan.a == wanted / 1000


def test_graphs_cannot_be_simulated(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(
        '{"format": "layerdag-graph-1", "name": "g", "categories": {"kind": ["a"]}, "numbers": {}, '
        '"units": {}, "edges": [], "edge_types": [], "edge_type_names": ["data"], '
        '"conditions": {}}'
    )
    assert ld.diff(path, path).equal
    with pytest.raises(UsageError, match="cannot be simulated"):
        ld.diff(path, path, cluster=ld.Cluster.preset("small"))


def test_exit_codes_are_those_of_diff(
    prefixes: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = prefixes
    assert main(["diff", a, a]) == 0
    assert "are equal: 2 ranks of 2 nodes" in capsys.readouterr().out
    assert main(["diff", a, b]) == 1
    told = capsys.readouterr().out
    assert "differ in communication" in told
    assert "ALL_REDUCE of 2 ranks: 1 -> 1, 1 MiB -> 4 MiB" in told
    assert main(["diff", a, b, "--ignore", "communication"]) == 0
    capsys.readouterr()
    assert main(["diff", a, f"{a}-nothing"]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_json_and_page(
    prefixes: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_a_page_never_replaces_something_else(
    prefixes: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert main(["diff", *prefixes, "--html", str(page)]) == 2
    assert "never replaced" in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert main(["diff", *prefixes, "--html", str(tmp_path / "page.txt")]) == 2
