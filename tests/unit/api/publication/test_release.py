"""The whole release with a stand-in for the model: what is written, and what stops it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from traced_jobs import invented, write_jobs

import layerdag as ld
from layerdag.api.publication import Outcome, Release, _evaluation, _release
from layerdag.api.publication.drawing import _draw
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import UsageError
from layerdag.sampling import GeneratedGraph, GenerationSettings
from layerdag.traces import read_workload


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    monkeypatch.setattr(_evaluation, "FOR_SIMILARITY", 10_000)  # not in every test: it takes long
    monkeypatch.setattr(_evaluation, "SIMULATED", 1)


def stand_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_release, "trained_model", lambda *_: SimpleNamespace(model=None))
    patch.setattr(_draw, "generate", invented)
    patch.setattr(_evaluation, "weight_attacks", lambda *_: ())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Release:
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        return made(tmp_path_factory.mktemp("release"))


def made(tmp_path: Path, count: int = 20, **settings: object) -> Release:
    folder = tmp_path / "traces"
    if not folder.exists():
        write_jobs(folder, count)
    return ld.release(folder, tmp_path / "out", num=12, budget=60, **settings)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_release_holds_samples_card_report_and_verdict(ran: Release) -> None:
    found = ran
    assert found.verdict is not None
    assert found.verdict.outcome is Outcome.RESERVED, str(found)
    assert "too few graphs to tell" in found.verdict.line
    assert files(found.out) == {
        "samples", "samples.csv", "croissant.json", "report.html", "report.json",
        "verdict.txt", "release.json",
    }  # fmt: skip
    jobs = sorted((found.out / "samples").iterdir())
    assert 8 <= len(jobs) <= 12
    assert read_workload(jobs[0] / jobs[0].name).num_ranks == 1
    assert (found.out / "verdict.txt").read_text() == found.verdict.line + "\n"
    told = found.to_dict()
    assert told["released"] is True
    assert told["samples"] == len(jobs)
    json.dumps(told, allow_nan=False)


def test_nothing_of_the_owner_is_in_the_release(ran: Release) -> None:
    found = ran
    for path in found.out.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"secretproj" not in data, path
            assert str(found.out.parent).encode() not in data, path
    assert {"hashes.json", "read.json", "report.html"} <= files(found.private)


def test_the_card_lists_the_samples(ran: Release) -> None:
    card = json.loads((ran.out / "croissant.json").read_text())
    assert "http://mlcommons.org/croissant/1.0" in card["conformsTo"]
    columns = (ran.out / "samples.csv").read_text().splitlines()[0].split(",")
    assert [field["name"] for field in card["recordSet"][0]["field"]] == columns
    assert card["rai:dataLimitations"]


def test_too_few_runs_are_a_verdict_and_not_an_error(tmp_path: Path) -> None:
    found = made(tmp_path, 3)
    assert not found.released
    assert found.verdict is not None
    assert "3 distinct runs were found, and a release needs at least 8" in found.verdict.line
    assert files(found.out) == {"report.html", "report.json", "verdict.txt", "release.json"}


def test_copies_are_rejected_and_their_price_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[GraphDataset] = []
    build = _release.dataset_of

    def kept(*arguments: object) -> GraphDataset:
        seen.append(build(*arguments))  # type: ignore[arg-type]
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
    assert told["outcomes"]["copy of a real graph"] >= 10  # type: ignore[index]
    assert float(str(told["drawn_per_kept"])) > 1.9
    assert found.results is not None
    assert found.results.evaluation is not None
    assert found.results.evaluation.novelty.copied == 0


def test_a_foreign_word_stops_the_release_and_keeps_the_samples_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from layerdag.api.publication import _writing
    from layerdag.evaluation.privacy import ForeignWord

    monkeypatch.setattr(
        _writing, "foreign_words", lambda *_: [ForeignWord("samples.csv", "acme_77")]
    )
    found = made(tmp_path)
    assert not found.released
    assert found.verdict is not None
    assert "acme_77" in found.verdict.line
    assert files(found.out) == {"report.html", "report.json", "verdict.txt", "release.json"}
    assert any((found.private / "refused-samples").iterdir())
    monkeypatch.undo()
    assert found.verdict.remedies


def test_stage_by_stage_ends_as_at_once_and_nothing_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_other_traces_need_a_new_release(tmp_path: Path) -> None:
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
def test_wrong_settings_are_refused_in_a_sentence(
    tmp_path: Path, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        made(tmp_path, 1, **settings)


def test_a_release_inside_its_traces_is_refused(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 1)
    with pytest.raises(UsageError, match="outside of the traces"):
        ld.release(folder, folder / "out")
