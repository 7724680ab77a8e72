import json
from pathlib import Path

import pytest
from broken_jobs import BEYOND_FIXING, BROKEN
from small_workloads import collective, compute, job

import layerdag as ld
from layerdag.cli import main
from layerdag.errors import DataError
from layerdag.traces import Workload, read_workload, write_groups, write_workload
from layerdag.traces.chakra import encode_trace


def written(workload: Workload, prefix: Path) -> Path:
    """Write a broken workload as it is; ``write_workload`` would refuse or mend it."""
    for rank, trace in enumerate(workload.traces):
        Path(f"{prefix}.{rank}.et").write_bytes(encode_trace(trace))
    if workload.groups:
        write_groups(workload.groups, Path(f"{prefix}.comm_group.json"))
    return prefix


@pytest.mark.parametrize("rule", sorted(BROKEN))
def test_a_fixed_workload_validates_and_the_first_one_is_untouched(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = written(BROKEN[rule], tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["validate", str(prefix), "--fix", "--out", str(tmp_path / "new" / "run")]) == 0
    out = capsys.readouterr().out
    assert f"fixed: [{rule}]" in out
    assert main(["validate", str(tmp_path / "new" / "run")]) == 0
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_what_is_left_is_told_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unequal = ((collective(1, size=8), compute(2, 1, 1)), (collective(1, size=16),))
    prefix = written(job(*unequal), tmp_path / "run")
    assert main(["validate", str(prefix), "--fix", "--out", str(tmp_path / "new")]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("fixed: [no-double-dependency]")
    assert second.startswith("error: [collectives-agree]")
    assert last == (
        f"1 rule fixed; 1 left, see above. 2 ranks written: layerdag simulate {tmp_path / 'new'}"
    )
    assert read_workload(tmp_path / "new").num_ranks == 2


def test_what_cannot_be_written_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = written(BEYOND_FIXING["acyclic"], tmp_path / "run")
    assert main(["validate", str(prefix), "--fix", "--out", str(tmp_path / "new"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["written"] is None
    assert "cycle" in told["refused"]
    assert [row["rule"] for row in told["findings"]] == ["acyclic"]
    assert not list(tmp_path.glob("new*"))


def test_fixes_are_listed_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = written(BROKEN["no-self-dependency"], tmp_path / "run")
    assert main(["validate", str(prefix), "--fix", "--out", str(tmp_path / "new"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["valid"] is True
    assert told["written"] == str(tmp_path / "new")
    assert told["fixes"] == [
        {
            "rule": "no-self-dependency",
            "where": f"{prefix}.0.et",
            "node": 2,
            "done": "waits no more for itself",
            "count": 1,
        }
    ]


def test_a_sound_workload_is_written_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_workload(job((collective(1),), (collective(1),)), tmp_path / "run")
    assert main(["validate", str(tmp_path / "run"), "--fix", "--out", str(tmp_path / "new")]) == 0
    assert "nothing to fix. 2 ranks written as they were read" in capsys.readouterr().out
    assert (tmp_path / "new.0.et").read_bytes() == (tmp_path / "run.0.et").read_bytes()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--fix"], "say where with --out PREFIX"),
        (["--out", "x"], "--out needs --fix"),
        (["--fix", "--out", "x", "--against", "data"], "give each its call"),
        (["again", "--fix", "--out", "x"], "takes one workload"),
    ],
)
def test_flags_that_do_not_go_together_are_wrong_use(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = written(BROKEN["no-self-dependency"], tmp_path / "run")
    assert main(["validate", str(prefix), *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_workload_that_is_there_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = written(BROKEN["no-self-dependency"], tmp_path / "run")
    assert main(["validate", str(prefix), "--fix", "--out", str(prefix)]) == 2
    assert "a workload lies there already" in capsys.readouterr().err


def test_findings_say_how_many_can_be_fixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = written(BROKEN["no-self-dependency"], tmp_path / "run")
    assert main(["validate", str(prefix)]) == 1
    assert "note: --fix --out PREFIX can fix 1 of these" in capsys.readouterr().out


def test_fixing_in_python_takes_a_path_a_workload_or_a_trace(tmp_path: Path) -> None:
    broken = BROKEN["no-self-dependency"]
    prefix = written(broken, tmp_path / "run")
    for thing in (prefix, str(prefix), broken, broken.traces[0]):
        fixed = ld.fix(thing)
        assert fixed.is_valid
        assert [fix.rule.id for fix in fixed.fixes] == ["no-self-dependency"]


def test_a_graph_cannot_be_fixed(tmp_path: Path) -> None:
    file = tmp_path / "flow.graphml"
    file.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">'
        '<node id="a"/><node id="b"/><edge source="a" target="b"/></graph></graphml>'
    )
    with pytest.raises(DataError, match="only traces can be fixed"):
        ld.fix(file)
