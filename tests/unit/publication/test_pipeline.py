"""What is written of a release, and what keeps it from being one at the last moment."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import states_when_killed
from traced_jobs import invented, write_jobs

from layerdag.codec.vocabulary import LeakedString
from layerdag.publication import pipeline as _writing
from layerdag.publication.cross_fitting import dataset_of
from layerdag.publication.drawing import KEPT, AcceptedSamples, keys_of
from layerdag.publication.evaluation import Reason, ReleaseDecision, ReleaseVerdict
from layerdag.publication.pages import ReleaseFindings
from layerdag.publication.pipeline import write_release
from layerdag.publication.settings import ReleaseSettings, read_jobs
from layerdag.publication.workspace import PrivateWorkspace
from layerdag.report.content import ReportContent
from layerdag.report.page import write_page
from layerdag.sampling.settings import GenerationSettings
from layerdag.traces.chakra.workload import read_workload

PUBLIC = {"samples", "samples.csv", "croissant.json", "report.html", "report.json",
    "verdict.txt", "release.json", "README.md"}  # fmt: skip
REFUSED = PUBLIC - {"samples", "samples.csv", "croissant.json"}
Make = Callable[..., ReleaseFindings]


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> ReleaseFindings:
    """Three samples that may be published."""
    folder = tmp_path_factory.mktemp("writing")
    settings = ReleaseSettings(write_jobs(folder / "traces", 12), folder / "out", num=3)
    jobs = read_jobs(settings)
    data = dataset_of(jobs, 0)
    kept = tuple(invented(None, data.schema, GenerationSettings(num=3)))
    return ReleaseFindings(
        settings=settings, jobs=jobs, data=data, needs=(),
        drawn=AcceptedSamples(kept, (KEPT,) * 3, 0, 0.5, 1.0), kept=kept, evaluation=None,
        verdict=ReleaseVerdict(ReleaseDecision.YES, found=("3 samples",)), seconds={}, training={},
    )  # fmt: skip


@pytest.fixture
def make(plain, tmp_path) -> Make:
    """Return a function that writes the three samples to a folder of the test's own."""
    work = PrivateWorkspace(tmp_path / "out.private", {}, is_resumed=False)
    work.path.mkdir()

    def written(**changes: Any) -> ReleaseFindings:
        settings = replace(plain.settings, out=tmp_path / "out")
        results = replace(plain, settings=settings, **changes)
        return write_release(work, results, lambda _: None)

    return written


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "release.json").read_text())
    return found


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "samples.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_what_may_be_published_is_all_there(make, tmp_path):
    results = make()
    assert results.verdict.outcome is ReleaseDecision.YES
    assert names(tmp_path / "out") == PUBLIC
    assert manifest(tmp_path / "out")["released"] is True
    assert manifest(tmp_path / "out")["samples"] == 3


def test_the_table_has_a_row_for_each_job_with_its_own_sizes(make, plain, tmp_path):
    make()
    rows = table(tmp_path / "out")
    assert [row["name"] for row in rows] == [sample.name for sample in plain.kept]
    for row, sample in zip(rows, plain.kept, strict=True):
        assert int(row["nodes"]) == sample.dag.num_nodes
        assert int(row["edges"]) == sample.dag.num_edges
        job = tmp_path / "out" / "samples" / row["name"] / row["name"]
        assert int(row["ranks"]) == read_workload(job).num_ranks == 1


def test_conditions_are_told_to_three_digits_and_sizes_once(make, plain, tmp_path):
    conditions = {"label": 0.00123456, "family": "wide", "num_nodes": 7.0, "world_size": 1.0}
    dag = plain.kept[0].dag.with_conditions({**plain.kept[0].dag.conditions, **conditions})
    make(kept=(replace(plain.kept[0], dag=dag), *plain.kept[1:]))
    first, second, _ = table(tmp_path / "out")
    assert (first["label"], first["family"]) == ("0.00123", "wide")
    assert second["family"] == ""  # has no such condition
    assert not {"num_nodes", "num_layers", "world_size"} & set(first)


def test_a_refused_release_gives_nothing_away_and_keeps_the_samples_aside(make, tmp_path):
    make(verdict=ReleaseVerdict(ReleaseDecision.NO, (Reason("two samples are copies", ()),)))
    assert names(tmp_path / "out") == REFUSED
    assert manifest(tmp_path / "out")["released"] is False
    assert manifest(tmp_path / "out")["samples"] == 0
    assert len(names(tmp_path / "out.private" / "refused-samples")) == 3


def test_a_foreign_word_turns_a_yes_into_a_no(make, tmp_path, monkeypatch):
    monkeypatch.setattr(
        _writing, "find_leaked_strings", lambda *_: [LeakedString("samples.csv", "zeus")]
    )
    results = make()
    assert results.verdict.outcome is ReleaseDecision.NO
    assert "zeus" in results.verdict.line
    assert (tmp_path / "out" / "verdict.txt").read_text() == results.verdict.line + "\n"
    assert names(tmp_path / "out") == REFUSED


def test_words_are_looked_for_in_the_written_files(make, plain, tmp_path):
    """The name of a sample is a private word: it stands in the table and in names of files."""
    name = plain.kept[0].name
    jobs = replace(plain.jobs, private=frozenset({name}))
    results = make(jobs=jobs)
    assert results.verdict.outcome is ReleaseDecision.NO
    assert name in results.verdict.line
    assert "samples.csv" not in names(tmp_path / "out")


def test_numbers_of_a_single_run_turn_a_yes_into_a_no(make, plain, monkeypatch):
    own = keys_of(plain.kept[1].written_graph())
    monkeypatch.setattr(_writing, "keys_of_one_run", lambda *_: np.unique(own)[:1])
    results = make()
    assert results.verdict.outcome is ReleaseDecision.NO
    assert "has a node with the numbers of a single real run" in results.verdict.line


def test_without_samples_there_is_a_report_of_why(make, tmp_path):
    make(kept=(), verdict=ReleaseVerdict(ReleaseDecision.NO, (Reason("3 runs are too few", ()),)))
    assert names(tmp_path / "out") == REFUSED
    assert not (tmp_path / "out.private" / "refused-samples").exists()
    assert "3 runs are too few" in (tmp_path / "out" / "verdict.txt").read_text()


def test_a_second_release_takes_the_place_of_the_first(make, tmp_path):
    make(verdict=ReleaseVerdict(ReleaseDecision.NO, (Reason("an error", ()),)))
    make()
    assert names(tmp_path / "out") == PUBLIC
    assert not (tmp_path / "out.private" / "refused-samples").exists()


def test_a_kill_at_any_step_leaves_the_older_release_or_the_new_one(
    make, plain, tmp_path, monkeypatch
):
    def brief(content: ReportContent, path: Path) -> Path:
        write_page(path, content.title, (".json", "{}"))
        return path

    monkeypatch.setattr(_writing, "write_report", brief)
    no = ReleaseVerdict(ReleaseDecision.NO, (Reason("an error", ()),))

    def look() -> str:
        found = manifest(tmp_path / "out")
        assert names(tmp_path / "out") == (PUBLIC if found["released"] else REFUSED)
        assert (tmp_path / "out" / "verdict.txt").read_text() == found["verdict"] + "\n"
        return "new" if found["released"] else "old"

    seen = states_when_killed(
        lambda: make(verdict=no, kept=()), lambda: make(kept=plain.kept[:1]), look
    )
    assert set(seen) == {"old", "new"}
    assert seen == sorted(seen, reverse=True)


def test_public_and_owner_get_a_report_and_the_public_one_names_no_real_job(make, tmp_path):
    make()
    assert {"report.html", "report.json"} <= names(tmp_path / "out.private")
    for name in ("report.html", "report.json"):
        assert "secretproj" not in (tmp_path / "out" / name).read_text()


def test_who_asks_is_told_where_all_this_lies(plain, tmp_path):
    work = PrivateWorkspace(tmp_path / "out.private", {}, is_resumed=False)
    work.path.mkdir()
    told: list[str] = []
    settings = replace(plain.settings, out=tmp_path / "out")
    no = ReleaseVerdict(ReleaseDecision.NO, (Reason("an error", ()),))
    write_release(work, replace(plain, settings=settings, verdict=no), told.append)
    assert told == [
        f"report: {tmp_path / 'out' / 'report.html'}",
        f"the owner's report, not to be shared: {tmp_path / 'out.private' / 'report.html'}",
        f"the samples that were refused: {tmp_path / 'out.private' / 'refused-samples'}",
    ]
