"""A release of private traces that record their arguments publishes programs."""

import csv
import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest
from corpus_cut import EMBEDDED

import layerdag as ld
from layerdag.cli.main import main
from layerdag.kinds.job import JOB
from layerdag.kinds.program import PROGRAM
from layerdag.programs.forward_program import Program
from layerdag.publication.pages import STEPS_OF_PROGRAMS
from layerdag.publication.pipeline import Release
from layerdag.publication.settings import ReleaseSettings, read_jobs
from layerdag.traces.chakra.workload import read_workload, write_workload

pytestmark = pytest.mark.slow  # trains and samples a model: 100 s

RUNS, SAMPLES = 24, 8
SECRET = "secretproj4711"
# Steps and samples end it long before the budget does.
SETTINGS: dict[str, Any] = {
    "num": SAMPLES,
    "budget": 300,
    "steps": 300,
    "max_nodes": 60,
    "cross_fit": 0,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Release:
    """Release steps of small embedded programs, each beside the program it was recorded with."""
    folder = tmp_path_factory.mktemp("release")
    traces = folder / "traces"
    traces.mkdir()
    lines = lzma.decompress((EMBEDDED / "programs" / "mlp.jsonl.xz").read_bytes()).splitlines()
    labels = ["name,label,family,strategy"]
    for number, line in enumerate(lines[:RUNS]):
        name = f"{SECRET}-{number}"
        program = Program.from_json(json.loads(line)).named(name)
        write_workload(program.step().workload(), traces / name)
        program.save(traces / f"{name}.program.json")
        labels.append(f"{name},{0.001 * (1 + number)},mlp,ddp")
    (traces / "labels.csv").write_text("\n".join(labels) + "\n")
    return ld.release(traces, folder / "out", **SETTINGS)


def test_programs_are_learned_and_published_with_their_steps(made):
    assert made.released, str(made)
    assert made.results is not None
    assert made.results.jobs.kind is PROGRAM
    rows = list(csv.DictReader((made.out / "samples.csv").read_text().splitlines()))
    assert len(rows) == SAMPLES
    assert {(row["ranks"], row["family"]) for row in rows} == {("1", "mlp")}
    assert "strategy" not in rows[0]
    for row in rows:
        prefix = made.out / "samples" / row["name"] / row["name"]
        program = Program.load(f"{prefix}.program.json")
        assert not program.check()
        step, published = program.step().workload(), read_workload(prefix)
        assert [t.names() for t in published.traces] == [t.names() for t in step.traces]


def test_validate_accepts_what_is_published(made, capsys):
    assert main(["validate", str(made.out / "samples")]) == 0
    assert f"{2 * SAMPLES} workloads and graphs checked: 0 errors" in capsys.readouterr().out


def test_no_file_holds_a_private_word(made):
    files = [path for path in made.out.rglob("*") if path.is_file()]
    assert len(files) > 2 * SAMPLES
    for path in files:
        content = path.read_bytes()
        assert SECRET.encode() not in content, path
        assert str(made.out.parent).encode() not in content, path


def test_the_pages_and_the_card_say_what_the_steps_lack(made):
    card = json.loads((made.out / "croissant.json").read_text())
    assert STEPS_OF_PROGRAMS in card["rai:dataLimitations"]
    assert STEPS_OF_PROGRAMS in (made.out / "README.md").read_text()


def test_what_was_drawn_is_taken_up_again(made):
    before = contents(made.out / "samples")
    again = ld.release(made.out.parent / "traces", made.out, **SETTINGS)
    assert again.verdict == made.verdict
    assert contents(made.out / "samples") == before


def test_traces_of_few_distinct_programs_are_jobs(made, tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    for number in range(3):
        for file in (made.out.parent / "traces").glob(f"{SECRET}-{number}.*"):
            shutil.copy(file, traces)
    found = read_jobs(ReleaseSettings(traces, tmp_path / "out"))
    assert (found.kind, len(found.graphs)) == (JOB, 3)
    assert "3 distinct programs" in [note.word for note in found.notes]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
