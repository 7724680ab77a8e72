import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_workloads import collective, compute, job

from layerdag.cli import main
from layerdag.traces import write_workload


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    write_workload(job((compute(1), collective(2, 1)), (collective(2),)), tmp_path / "a" / "run")
    return tmp_path / "a" / "run"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    write_workload(job((collective(1),), (compute(1),)), tmp_path / "b" / "run")
    return tmp_path / "b" / "run"


def test_a_sound_workload_passes(sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(sound)]) == 0
    assert capsys.readouterr().out == "1 workload or graph checked: no finding\n"


def test_findings_name_file_node_rule_and_remedy(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(broken)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("error: [collectives-agree]")
    assert "run.0.et (rank 0): node 1" in first
    assert "Let all members call it in the same order" in first
    assert last == "1 workload or graph checked: 1 error, 0 warnings"


def test_a_folder_of_workloads_is_walked_and_json_says_the_same(
    sound: Path, broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(sound.parents[1]), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["checked"] == [str(sound), str(broken)]
    assert told["valid"] is False
    assert [f["rule"] for f in told["findings"]] == ["collectives-agree"]


def test_what_cannot_be_read_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.0.et").write_bytes(b"\x05abc")
    assert main(["validate", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("error: [readable]")
    assert "Traceback" not in out


@pytest.mark.parametrize("name", ["0", "tensor", "-1", "9" * 5000])
def test_names_in_a_group_file_must_be_integers_above_0(
    sound: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    sound.with_name("run.comm_group.json").write_text(json.dumps({name: [0, 1]}))
    assert main(["validate", str(sound)]) == 1
    assert capsys.readouterr().out.startswith("error: [described-groups]")


def test_warnings_fail_only_when_asked(tmp_path: Path) -> None:
    costless = replace(compute(1), attributes=())
    write_workload(job((costless,)), tmp_path / "run")
    assert main(["validate", str(tmp_path / "run")]) == 0
    assert main(["validate", str(tmp_path / "run"), "--strict"]) == 1


def test_who_sampled_is_told_to_sample_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costless = replace(compute(1), attributes=())
    write_workload(job((costless,), (costless,)), tmp_path / "sample-00000" / "sample-00000")
    assert main(["validate", str(tmp_path)]) == 0
    assert "Write num_ops and tensor_size" in capsys.readouterr().out
    manifest = {
        "layerdag_version": "0.1.0",
        "checkpoint_sha256": "0",
        "format": "et",
        "samples": [{"name": "sample-00000"}],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert main(["validate", str(tmp_path)]) == 0
    assert "Sample again" in capsys.readouterr().out


def test_jobs_of_one_rank_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_workload(job((compute(1),)), tmp_path / "run")
    assert main(["validate", str(tmp_path / "run")]) == 0
    assert "1 of 1 have one rank; 'layerdag simulate' runs these" in capsys.readouterr().out
    assert main(["validate", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["one_rank"] == told["checked"]
    assert main(["info", str(tmp_path / "run")]) == 0
    assert "ASTRA-sim itself needs two or more" in capsys.readouterr().out


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--rules", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"acyclic", "known-group"} <= {rule["id"] for rule in told["traces"]}
    assert "layer-consistent" in {rule["id"] for rule in told["graphs"]}


def test_nothing_to_validate_is_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate"]) == 2
    assert main(["validate", str(tmp_path)]) == 1
    assert "give a folder of .et files" in capsys.readouterr().err


def test_a_cyclic_flow_graph_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = "".join(f'<node id="{i}"/>' for i in range(2))
    edges = '<edge source="0" target="1"/><edge source="1" target="0"/>'
    (tmp_path / "g.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        f'<graph edgedefault="directed">{nodes}{edges}</graph></graphml>'
    )
    assert main(["validate", str(tmp_path / "g.graphml")]) == 1
    assert "cycle" in capsys.readouterr().out
