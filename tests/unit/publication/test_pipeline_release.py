"""The whole release with a stand-in for the model: what is written, and what stops it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from traced_jobs import invented, write_jobs

import layerdag as ld
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import UsageError
from layerdag.publication import drawing as _draw, evaluation as _evaluation, pipeline as _release
from layerdag.publication.evaluation import ReleaseDecision
from layerdag.publication.pipeline import Release
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.traces.chakra.workload import read_workload


@pytest.fixture(autouse=True)
def no_model(monkeypatch) -> None:
    stand_in(monkeypatch)
    monkeypatch.setattr(_evaluation, "MIN_COMPARED", 10_000)  # not in every test: it takes long
    monkeypatch.setattr(_evaluation, "SIMULATED", 1)


def stand_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_release, "train_model", lambda *_: SimpleNamespace(model=None))
    patch.setattr(_draw, "generate", invented)
    patch.setattr(_evaluation, "weight_attacks", lambda *_: ())


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Release:
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        return made(tmp_path_factory.mktemp("release"))


def made(tmp_path: Path, count: int = 14, **settings: object) -> Release:
    folder = tmp_path / "traces"
    if not folder.exists():
        write_jobs(folder, count)
    return ld.release(folder, tmp_path / "out", num=12, budget=60, **settings)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_release_holds_samples_card_report_and_verdict(ran):
    found = ran
    assert found.verdict is not None
    assert found.verdict.outcome is ReleaseDecision.RESERVED, str(found)
    assert "too few graphs to tell" in found.verdict.line
    assert files(found.out) == {
        "samples", "samples.csv", "croissant.json", "report.html", "report.json",
        "verdict.txt", "release.json", "README.md",
    }  # fmt: skip
    jobs = sorted((found.out / "samples").iterdir())
    assert 8 <= len(jobs) <= 12
    assert read_workload(jobs[0] / jobs[0].name).num_ranks == 1
    assert (found.out / "verdict.txt").read_text() == found.verdict.line + "\n"
    told = found.to_dict()
    assert told["released"] is True
    assert told["samples"] == len(jobs)
    json.dumps(told, allow_nan=False)


def test_nothing_of_the_owner_is_in_the_release(ran):
    found = ran
    for path in found.out.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"secretproj" not in data, path
            assert str(found.out.parent).encode() not in data, path
    assert {"hashes.json", "read.json", "report.html"} <= files(found.private)


def test_the_card_lists_the_samples(ran):
    card = json.loads((ran.out / "croissant.json").read_text())
    assert "http://mlcommons.org/croissant/1.1" in card["conformsTo"]
    columns = (ran.out / "samples.csv").read_text().splitlines()[0].split(",")
    assert [field["name"] for field in card["recordSet"][0]["field"]] == columns
    assert card["rai:dataLimitations"]


def test_too_few_runs_are_a_verdict_and_not_an_error(tmp_path):
    found = made(tmp_path, 3)
    assert not found.released
    assert found.verdict is not None
    assert "3 distinct runs were found, and a release needs at least 8" in found.verdict.line
    assert files(found.out) == {
        "report.html", "report.json", "verdict.txt", "release.json", "README.md"
    }  # fmt: skip


def test_copies_are_rejected_and_their_price_is_told(tmp_path, monkeypatch):
    seen: list[GraphDataset] = []
    build = _release.dataset_of

    def kept(*arguments: object) -> GraphDataset:
        seen.append(build(*arguments))
        return seen[-1]

    def half_copies(
        model: object, schema: GraphSchema, settings: GenerationSettings
    ) -> Iterator[GeneratedGraph]:
        train = seen[-1].graphs["train"]
        for i, sample in enumerate(invented(model, schema, settings)):
            dag = train[i % len(train)].with_conditions(sample.dag.conditions)
            yield replace(sample, dag=dag) if i % 2 else sample

    monkeypatch.setattr(_release, "dataset_of", kept)
    monkeypatch.setattr(_draw, "generate", half_copies)
    found = made(tmp_path)
    told = found.to_dict()
    assert told["outcomes"]["copy of a real graph"] >= 10
    assert float(str(told["drawn_per_kept"])) > 1.9
    assert found.results is not None
    assert found.results.evaluation is not None
    assert found.results.evaluation.novelty.copied == 0


def test_stage_by_stage_ends_as_at_once_and_nothing_is_drawn_again(tmp_path, monkeypatch):
    for stage in ("read", "train", "sample"):
        found = made(tmp_path, until=stage)
        assert found.verdict is None
        assert not found.released
        assert not found.out.exists()
    monkeypatch.setattr(_draw, "generate", None)
    step_by_step = made(tmp_path)
    again = made(tmp_path)
    assert step_by_step.verdict == again.verdict
    assert step_by_step.released


def test_other_traces_need_a_new_release(tmp_path):
    made(tmp_path, until="read")
    write_jobs(tmp_path / "traces", 3, start=500)
    with pytest.raises(UsageError, match="other traces than there are now"):
        made(tmp_path)
    assert made(tmp_path, overwrite=True, seed=1).released


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"until": "dinner"}, "'until' must be one of"),
        ({"temperature": -1.0}, "'temperature' must lie in"),
        ({"steps": 0}, "'steps' must be at least 1"),
        ({"colour": 1}, "colour"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(tmp_path, settings, words):
    with pytest.raises(UsageError, match=words):
        made(tmp_path, 1, **settings)


def test_a_release_inside_its_traces_is_refused(tmp_path):
    folder = write_jobs(tmp_path / "traces", 1)
    with pytest.raises(UsageError, match="outside of the traces"):
        ld.release(folder, folder / "out")
