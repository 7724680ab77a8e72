"""``layerdag validate`` of samples in parts."""

import json
from pathlib import Path

import pytest
from sample_parts import written
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.cli import main
from layerdag.cli.verbs.traces.validating import check_part, parts_at
from layerdag.sampling import write_samples


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    return written(job_checkpoint(folder), folder / "s")


def test_every_sample_is_checked_as_in_a_folder_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sample_parts import TEN

    checkpoint = job_checkpoint(tmp_path)
    write_samples(checkpoint, TEN, tmp_path / "each")
    code = main(["validate", str(tmp_path / "each")])
    told = capsys.readouterr().out.splitlines()
    parts = written(checkpoint, tmp_path / "parts")
    assert main(["validate", str(parts)]) == code
    found = capsys.readouterr().out.splitlines()
    assert len(found) == len(told)
    assert found[-1] == told[-1]
    assert found[-1].startswith("10 workloads and graphs checked: ")


def test_graphs_and_single_parts_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = written(chain_checkpoint(tmp_path), tmp_path / "s")
    assert main(["validate", str(out / "part-000000.tar")]) in (0, 1)
    assert "4 workloads and graphs checked" in capsys.readouterr().out


def test_parts_are_what_json_lists(jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["validate", str(jobs), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["checked"] == [str(jobs / f"part-{i:06d}.tar") for i in range(3)]


def test_missing_and_damaged_parts_are_findings(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in jobs.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "part-000001.tar").unlink()
    (tmp_path / "part-000002.tar").write_bytes(b"x" * 700)
    assert main(["validate", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    for part in (1, 2):
        assert f"error: [readable] {tmp_path}/part-00000{part}.tar" in told


def test_findings_name_the_sample(jobs: Path, tmp_path: Path) -> None:
    import tarfile

    part = tmp_path / "p.tar"
    with (
        tarfile.open(jobs / "part-000000.tar") as source,
        tarfile.open(part, "w", format=tarfile.USTAR_FORMAT) as target,
    ):
        for member in source:
            if not member.name.startswith("sample-00001.0"):
                target.addfile(member, source.extractfile(member))
    found = check_part(part)
    assert any("sample-00001" in finding.found for finding in found.findings)


def test_other_places_hold_no_parts(tmp_path: Path) -> None:
    (tmp_path / "x.et").write_bytes(b"")
    assert parts_at(tmp_path) is None
    assert parts_at(tmp_path / "x.et") is None
    assert parts_at(tmp_path / "nothing") is None
