"""A checkpoint that learned its graphs by heart is caught, one that never saw them is not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_jobs import random_job

import layerdag as ld
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import CheckpointError, UsageError
from layerdag.privacy import shadows as _training
from layerdag.privacy.shadows import (
    ShadowModel,
    ShadowPool,
    ShadowSettings,
    kept_models,
    recipe_of,
    shadow_attacks,
    shadow_lock,
    shadow_models,
)
from layerdag.statistics import Verdict
from layerdag.training.checkpoint import (
    LoadedCheckpoint,
    Origin,
    checkpoint_fingerprint,
    checkpoint_schema,
)
from layerdag.training.settings import OptimizerConfig


def test_a_memorizer_is_caught_beside_an_honest_holdout(memorizer):
    told: list[str] = []
    settings = ShadowSettings(count=6)
    attacks, report = shadow_attacks(memorizer.checkpoint, memorizer.data, settings, told.append)
    assert [attack.name for attack in attacks] == ["likelihood_ratio_offline", "likelihood_ratio"]
    for attack in attacks:
        assert (attack.members, attack.non_members) == (12, 12)
        assert attack.auc > 0.75
        assert attack.verdict is Verdict.LEAKS
        assert attack.holdout is not None
        assert attack.holdout.interval.low < 0.5
        assert attack.rates[0].true_positive_rate is None  # 12 graphs resolve no 1 %
    assert [line.split(":")[0] for line in told] == [f"shadow model {i} of 6" for i in range(1, 7)]
    assert (report.models, report.runs, report.is_recorded) == (6, 24, True)
    assert report.steps == report.planned_steps == 20
    assert {each.name for each in report.as_targets} >= {"likelihood", "likelihood_ratio"}
    assert min(each.auc for each in report.as_targets) > 0.6
    assert "from random weights: 20 steps each, as many passes" in report.in_words()


def test_a_checkpoint_that_never_saw_the_graphs_is_not_accused(memorizer):
    parts = {"train": memorizer.graphs[24:36], "test": memorizer.graphs[36:]}
    unseen = GraphDataset.with_schema("words", checkpoint_schema(memorizer.checkpoint), parts)
    settings = ShadowSettings(count=6, steps=2)
    attacks, report = shadow_attacks(memorizer.checkpoint, unseen, settings, lambda _: None)
    for attack in attacks:
        assert attack.verdict is not Verdict.LEAKS
        assert attack.interval.low < 0.5 < attack.interval.high
    assert report.fraction_of_passes == pytest.approx(0.1)
    assert "10% of the passes that the checkpoint made" in report.in_words()


@pytest.mark.slow
def test_sixteen_shadow_models_are_nearly_sure(memorizer):
    data = memorizer.data
    settings = ld.TrainSettings(
        max_steps=100,
        evaluate_every=100,
        ema_decay=0.5,
        optimizer=OptimizerConfig(learning_rate=2e-2),
    )
    checkpoint = ld.train(data, settings=settings, width=32, depth=1).checkpoint
    attacks, report = shadow_attacks(checkpoint, data, ShadowSettings(), lambda _: None)
    assert min(attack.auc for attack in attacks) > 0.9
    assert report.as_targets[0].interval.low > 0.8


def test_jobs_are_attacked_by_the_call_in_python_as_flow_graphs_are():
    jobs = [random_job(seed, 2, layers=3) for seed in range(12)]
    data = ld.GraphDataset.build("jobs", "trace", {"train": jobs[:6], "val": jobs[:2]}, num_bins=2)
    plan = ld.TrainSettings(max_steps=2, evaluate_every=2)
    checkpoint = ld.train(data, settings=plan, width=32, depth=1)
    found = ld.audit(
        train=jobs[:6],
        holdout=jobs[6:],
        synthetic=jobs[:1],
        weights=checkpoint,
        shadows=ld.ShadowSettings(count=6),
        tell=lambda _: None,
    )
    assert [attack.name for attack in found.weights[:3]] == [
        "likelihood", "likelihood_ratio_offline", "likelihood_ratio",
    ]  # fmt: skip
    assert all(attack.holdout for attack in found.weights[1:3])
    assert found.shadows is not None
    assert found.shadows.runs == 12
    assert "6 shadow models of " in str(found)
    assert "  likelihood_ratio_offline: AUROC" in str(found)


def trained(shadow: int, path: Path) -> ShadowModel:
    path.mkdir()
    return ShadowModel(np.array([float(shadow), np.nan]), 10 + shadow, 1.5)


def test_models_are_kept_without_weights_and_damaged_files_are_made_again(tmp_path):
    told: list[int] = []
    models = kept_models(tmp_path, 3, 2, trained, lambda shadow, _: told.append(shadow))
    assert [model.steps for model in models] == [10, 11, 12]
    assert told == [0, 1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"0000{i}.npz" for i in range(3)]
    (tmp_path / "00001.npz").write_bytes(b"cut off")
    made: list[int] = []

    def again(shadow: int, path: Path) -> ShadowModel:
        made.append(shadow)
        return trained(shadow, path)

    models = kept_models(tmp_path, 3, 2, again)
    assert made == [1]
    assert (models[2].steps, models[2].seconds) == (12, 1.5)
    np.testing.assert_array_equal(models[2].loss_K, [2.0, np.nan])


def test_losses_of_another_audit_are_discarded_and_other_folders_are_left_alone(tmp_path):
    folder = tmp_path / "kept"
    for target, left in (("a", 0), ("a", 1), ("b", 0)):
        with shadow_lock(folder, {"weights": target}) as held:
            assert len(list(held.glob("*.npz"))) == left
            np.savez(held / "00000.npz", loss=np.ones(2))
    assert "stays with the owner" in (folder / "README.txt").read_text()
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="thesis"), shadow_lock(folder, {"weights": "b"}):
        pass
    other = tmp_path / "other"
    other.mkdir()
    (other / "00000.npz").write_bytes(b"")
    with pytest.raises(UsageError, match=r"has no target\.json"), shadow_lock(other, {}):
        pass


def started_from(checkpoint: LoadedCheckpoint, name: str, path: Path) -> LoadedCheckpoint:
    origin = Origin(name, checkpoint_fingerprint(path))
    return replace(checkpoint, meta=replace(checkpoint.meta, origin=origin))


def test_settings_and_passes_are_those_of_the_checkpoint(memorizer):
    recipe = recipe_of(memorizer.checkpoint, memorizer.data, None)
    assert recipe.is_recorded
    assert recipe.settings.optimizer.learning_rate == 6e-2
    assert recipe.passes == 20  # one micro-batch holds all
    plan, planned = recipe.settings_for(memorizer.data, 7, None, 3.0)
    assert (plan.seed, plan.max_steps, plan.max_seconds, planned) == (7, 20, 3.0, 20)
    assert plan.evaluate_every > 20  # nothing is selected
    assert recipe.settings_for(memorizer.data, 7, 5, None)[0].max_steps == 5
    assert recipe.settings_for(memorizer.data, 7, 500, None)[0].max_steps == 20


def test_a_checkpoint_that_records_nothing_has_the_usual_settings(memorizer):
    silent = replace(memorizer.checkpoint, run_config={})
    recipe = recipe_of(silent, memorizer.data, None)
    assert not recipe.is_recorded
    assert recipe.settings == ld.TrainSettings()
    wrong = replace(memorizer.checkpoint, run_config={"training": {"batch_nodes": -1}})
    with pytest.raises(CheckpointError, match="batch_nodes"):
        recipe_of(wrong, memorizer.data, None)


def test_the_start_must_be_the_checkpoints_own(memorizer):
    checkpoint = memorizer.checkpoint
    with pytest.raises(UsageError, match="started from random weights"):
        recipe_of(checkpoint, memorizer.data, "base")
    tuned = started_from(checkpoint, "base", checkpoint.path)
    with pytest.raises(UsageError, match=r"started from the checkpoint 'base'.*--init"):
        recipe_of(tuned, memorizer.data, None)
    recipe = recipe_of(tuned, memorizer.data, checkpoint.path)
    spec, start = recipe.start_for(memorizer.data)
    assert start is not None
    assert spec.arguments["width"] == 32
    with pytest.raises(UsageError, match="is not the checkpoint that"):
        recipe_of(started_from(checkpoint, "pretrained", checkpoint.path), memorizer.data, None)


def test_the_budget_is_shared_and_steps_have_none():
    assert ShadowSettings(count=20).seconds == 30.0
    assert ShadowSettings(count=20, budget=60).seconds == 3.0
    assert ShadowSettings(steps=5).seconds is None


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"count": 3}, "at least 4 shadow models, found 3"),
        ({"steps": 3, "budget": 5.0}, "leave one of them out"),
        ({"steps": 0}, "at least 1 step"),
        ({"budget": 0.0}, "above 0 seconds"),
        ({"seed": -1}, "must not be negative"),
    ],
)
def test_what_is_out_of_bounds_is_refused(settings, told):
    with pytest.raises(UsageError, match=told):
        ShadowSettings(**settings)


def test_every_graph_is_left_out_by_half_and_a_stopped_audit_goes_on(
    memorizer, tmp_path, monkeypatch
):
    checkpoint, pool = memorizer.checkpoint, ShadowPool.from_dataset(memorizer.data, 0)
    recipe = recipe_of(checkpoint, memorizer.data, None)
    settings = ShadowSettings(count=4, steps=1, folder=tmp_path / "kept")
    whole, trained = _training.train, []

    def stopped(*arguments: object) -> object:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(whole(*arguments))
        return trained[-1]

    with monkeypatch.context() as patch:
        patch.setattr(_training, "train", stopped)
        with pytest.raises(KeyboardInterrupt):
            shadow_models(checkpoint, pool, recipe, settings, lambda _: None)
    files = sorted((tmp_path / "kept").glob("*.npz"))
    assert len(files) == 2
    written = [file.stat().st_mtime_ns for file in files]
    models, member_SG, planned = shadow_models(checkpoint, pool, recipe, settings, lambda _: None)
    assert (len(models), planned) == (4, 20)
    assert (member_SG.sum(axis=0) == 2).all()
    assert [file.stat().st_mtime_ns for file in files] == written
    assert len({tuple(model.loss_K.tolist()) for model in models}) == 4
    assert not list((tmp_path / "kept").glob("*.run"))


def test_a_half_has_its_own_graphs_and_what_every_model_has(memorizer):
    data = memorizer.data.replaced(extra_train=frozenset({"g3"}))
    pool = ShadowPool.from_dataset(data, 0)
    assert len(pool.graphs) == 23  # the further one is no member
    assert (pool.scored < 11).sum() == len(data.members) == 11
    member_G = np.arange(23) % 2 == 0
    half = pool.half(member_G)
    assert len(half.graphs["train"]) == 1 + 12
    assert half.graphs["train"][0] is data.graphs["train"][3]
    assert {id(dag) for dag in half.graphs["val"]} < {id(dag) for dag in half.graphs["train"]}


def test_graphs_of_one_program_are_drawn_together(memorizer):
    data = memorizer.data
    twice = {**data.graphs, "test": (*data.graphs["test"][:-1], data.graphs["train"][0])}
    pool = ShadowPool.from_dataset(data.replaced(graphs=twice), 0)
    assert pool.run_G[0] == pool.run_G[-1]
    assert len(set(pool.run_G.tolist())) == 23


def test_too_few_graphs_are_refused(memorizer):
    few = memorizer.data.replaced(graphs={**memorizer.data.graphs, "val": (), "test": ()})
    with pytest.raises(UsageError, match="at least 8 distinct training and held-out graphs"):
        ShadowPool.from_dataset(few, 0)
