"""Choice of settings: by cross-validation on the training part, never worse than the defaults."""

import numpy as np
import pytest
from tile_files import write_tile

import layerdag as ld
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import UsageError
from layerdag.surrogates.data import labeled
from layerdag.surrogates.scoring import EVALUATED
from layerdag.surrogates.surrogate import FittedSurrogate, KnownTargets, separate_fits
from layerdag.surrogates.tuning import Search, Tuning, _cross_validated, _folds, scored, tune

FAST = Search(trials=2, folds=2, score="mae")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> GraphDataset:
    rng = np.random.default_rng(5)
    counts = {"train": 30, "val": 6, "test": 12}
    return ld.load_dataset(
        write_tile(tmp_path_factory.mktemp("tile") / "tile", rng, counts, layers=4, codes=3)
    )


@pytest.fixture(scope="module")
def found(data) -> Tuning:
    return tune(data, "boosting", FAST)


def test_the_best_trial_is_fitted_and_the_defaults_are_among_them(data, found):
    means = [trial.mean for trial in found.trials]
    assert len(means) == 2
    assert means == sorted(means)
    assert found.best.mean <= found.defaults.mean
    assert found.defaults.settings == {}
    assert all(len(trial.values) == 2 and trial.spread >= 0 for trial in found.trials)
    again = FittedSurrogate.fit(data, "boosting", settings=found.best.settings)
    test = data.graphs["test"]
    np.testing.assert_array_equal(found.surrogate.predict(test), again.predict(test))


def test_a_score_that_is_to_be_high_is_maximized(data):
    ranked = tune(data, "boosting", Search(trials=2, folds=2, score="spearman")).trials
    assert ranked[0].mean >= ranked[1].mean


def test_the_same_seed_finds_the_same_whatever_validation_and_test_part(data, found):
    parts = {**data.graphs, "val": data.graphs["test"], "test": data.graphs["val"]}
    swapped = data.replaced(graphs=parts)
    assert tune(swapped, "boosting", FAST).trials == found.trials


def test_equal_graphs_are_in_one_fold(data):
    train = labeled([*data.graphs["train"], *data.graphs["train"]], data.schema, "label", ())
    fold_B = _folds(train.dags, 3, seed=0)
    half = len(fold_B) // 2
    np.testing.assert_array_equal(fold_B[:half], fold_B[half:])
    assert set(fold_B) == {0, 1, 2}


def test_what_was_chosen_is_kept_with_the_surrogate(data, found, tmp_path):
    scored(found.surrogate, data).save(tmp_path / "tuned")
    kept = FittedSurrogate.load(tmp_path / "tuned")
    assert kept.notes["tuning"]["settings"] == dict(found.best.settings)
    assert kept.notes["test"] == 12


def test_a_shared_network_is_chosen_by_the_mean_over_its_targets(data):
    twice = {
        part: tuple(
            dag.with_conditions({**dag.conditions, "twice": 2 * dag.conditions["label"]})
            for dag in dags
        )
        for part, dags in data.graphs.items()
    }
    both, names = data.replaced(graphs=twice), ("label", "twice")
    search = Search(trials=1, folds=2)
    found = tune(both, "message_passing", search, target=names, shared=True)
    assert found.surrogate.targets == names
    assert found.surrogate.others[0].model.shares_arrays(found.surrogate.model)
    assert len(found.best.values) == 2
    assert "tuning" in found.surrogate.notes
    told = scored(found.surrogate, both)
    assert [one.notes["test"] for one in (told, *told.others)] == [12, 12]
    with pytest.raises(UsageError, match=r"2 targets are to be tuned, label, twice, .*'shared'"):
        tune(both, "message_passing", search, target=names)
    with pytest.raises(UsageError, match="'mae' has the unit of its target"):
        tune(both, "message_passing", FAST, target=names, shared=True)
    with pytest.raises(UsageError, match="'boosting' has no network"):
        tune(both, "boosting", search, target=names, shared=True)


def test_a_fold_without_a_graph_of_a_target_is_scored_by_the_others(data):
    train = data.graphs["train"]
    rare = tuple(
        dag.with_conditions({**dag.conditions, "rare": float(i)}) if i < 20 else dag
        for i, dag in enumerate(train)
    )
    known = KnownTargets.from_dags(rare, data.schema, ("label", "rare"), ())
    fold_B = np.array([int(i < 20) for i in range(len(rare))])  # fold 0 has no graph with "rare"
    fit = separate_fits("boosting", {"trees": 20})
    score = next(one for one in EVALUATED if one.name == "spearman")
    sizes = data.schema.sizes()
    folds = _cross_validated([fit], known, fold_B, sizes, score, 0)
    assert np.isfinite(next(folds))


def test_too_little_is_refused(data):
    with pytest.raises(UsageError, match="score is 'mse'"):
        Search(score="mse")
    with pytest.raises(UsageError, match="folds is 1"):
        Search(folds=1)
    with pytest.raises(UsageError, match="too few for 20 folds"):
        tune(data, "boosting", Search(trials=1, folds=20))
    with pytest.raises(UsageError, match="no settings"):
        tune(data, "stacked", FAST)
