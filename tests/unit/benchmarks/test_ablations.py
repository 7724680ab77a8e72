"""Variants of the fast model: files, what a run depends on, weights that are shared, the page."""

from pathlib import Path
from typing import Any

import pytest
import table_records
from benchmark_tables import ablations, ablations_page, base, runs, scheduling, variants
from documentation import ROOT

SMALL = 8


def test_every_experiment_of_a_variant_is_a_file():
    folder = ROOT / "configs" / "experiment" / "ablation"
    files = {path.stem for path in folder.glob("*.yaml")}
    named = {variant.experiment for variant in variants.VARIANTS.values()}
    assert named <= files
    # What is on already where a data set's kind asks for it, and is measured by few-real.
    assert files - named == {"observed_neighbors"}


def test_a_variant_differs_from_the_full_model_in_its_part_alone(data):
    full, other = (variants.spec_of(name, data).config for name in ("full", "no_attention"))
    assert (full.encoder.attention, other.encoder.attention) == ("window", "none")
    assert (full.heads, full.width) == (other.heads, other.width)
    full, other = (variants.settings_of(name, 1, 1) for name in ("full", "no_attention"))
    assert full == other
    assert list(variants.seen_by("no_conditions", data).schema.condition_names) == []
    assert variants.seen_by("full", data) is data


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Any]:
    """Return the records of a table whose runs compute nothing."""
    monkeypatch.setattr(ablations.Workshop, "figures", lambda self, variant, run: {})
    table = ablations.Ablations(weights=tmp_path / "weights")
    ground = ablations.Ground("jobs", lambda: scheduling.scheduled(20), 300, ("all pairs",))
    monkeypatch.setattr(table, "grounds", lambda: [ground])
    return list(table.make(runs.Store("ablations", tmp_path / "runs"), base.Options(**options)))


def test_steps_are_the_same_for_all_variants_and_follow_the_seconds(tmp_path, monkeypatch):
    records = made(tmp_path, monkeypatch, seconds=15.0, seeds=2)
    assert {record.run.config["steps"] for record in records} == {150}
    assert len(records) == 2 * (len(variants.VARIANTS) - 1)
    assert len({record.run.name for record in records}) == len(records)
    assert [record.run.seed for record in records] == sorted(r.run.seed for r in records)


def test_weights_that_are_there_are_not_trained_again(tmp_path, monkeypatch, data):
    trained = []

    def train(folder: Path, *_: Any) -> None:
        trained.append(folder)
        (folder / "best").mkdir(parents=True)

    monkeypatch.setattr(ablations, "trained_in", train)
    monkeypatch.setattr(ablations, "load_checkpoint", lambda path: path)
    for name in ("spec_of", "settings_of", "seen_by"):
        monkeypatch.setattr(ablations, name, lambda *_: None)
    workshop = ablations.Workshop(data, tmp_path / "weights")
    found = [workshop.weights("full", steps, 0)[0] for steps in (2, 2, 3)]
    assert len(trained) == 2
    assert found[0] == found[1] == tmp_path / "weights" / "full-steps2-seed0" / "best"
    assert variants.VARIANTS["no posterior"].trained == "full"
    assert variants.VARIANTS["no out-degree constraints"].trained == "full"
    assert variants.VARIANTS["no messages"].trained == "no_messages"


def record(variant: str, seed: int, nats: float, step: float | None = 0.25) -> runs.Record:
    config = {"task": "jobs", "variant": variant, "steps": 250, "samples": 200}
    figures = {
        "nats": nats, "mean_ratio": 1.25, "copied": 0.5, "new_neighborhoods": 0.125,
        "agreement": -2.0, "step_processor_s": step,
    }  # fmt: skip
    return table_records.record("ablations", f"{variant}-{seed}", figures, config, seed=seed)


def test_the_page_has_means_and_deviations_and_says_what_is_not_made():
    found = [record("full", 0, 10.0), record("full", 1, 12.0), record("no posterior", 0, 9.0, None)]
    text = ablations_page.ablations_page(found)
    assert (
        "| full | 11.0 ± 1.4 | 1.25 ± 0.00 | 50 ± 0 | 12.5 ± 0.0 | -2.00 ± 0.00 | 0.25 ± 0.00 | 2 |"
        in (text)
    )
    assert "| no posterior | 9.0 | 1.25 | 50 | 12.5 | -2.00 |  | 1 |" in text
    assert "250 steps each. Not made: no posterior, no guidance; " in text
    assert "TPU Tile, its validation file" not in text


@pytest.mark.slow
def test_variants_of_sampling_take_the_weights_of_the_full_model(tmp_path, data):
    workshop = ablations.Workshop(data, tmp_path)
    found = {}
    for name in ("full", "no posterior", "no conditions"):
        config = {"steps": 2, "samples": SMALL}
        run = runs.Run(name, "fast", 0, config)
        found[name] = workshop.figures(variants.VARIANTS[name], run)
    assert found["full"]["nats"] == found["no posterior"]["nats"] != found["no conditions"]["nats"]
    assert found["full"]["step_processor_s"] > 0
    assert found["no posterior"]["step_processor_s"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "full-steps2-seed0", "no_conditions-steps2-seed0",
    ]  # fmt: skip
