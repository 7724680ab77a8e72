import functools
import json
import operator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from killing import states_when_killed
from safetensors.numpy import load_file, save_file

from layerdag.errors import CheckpointError, UsageError
from layerdag.surrogates.families.base import SurrogateModel
from layerdag.surrogates.families.networks import NetworkSettings, fit_message_passing
from layerdag.surrogates.families.registry import FAMILIES
from layerdag.surrogates.families.trees import BoostingSettings, fit_boosting, fit_stacked
from layerdag.surrogates.files import card, load_notes, load_surrogate, save_surrogate
from layerdag.surrogates.scoring import evaluation

NOTES = {
    "target": "label",
    "data": "toy",
    "train": 30,
    "seed": 5,
    "excluded": ["duration"],
    "seen": {"fewest": 3, "most": 99, "codes": []},
    "calibration": {"log": True, "errors": [0.1] * 12},
}


def test_a_card_says_what_it_was_fitted_on_and_how_far_it_goes():
    text = card("boosting", NOTES)
    assert text.startswith("# Surrogate of label\n")
    for told in (
        "| family | `boosting` |",
        "toy, 30 training graphs",
        "does not see | duration |",
        "3 to 99 nodes",
        "12 validation graphs",
    ):
        assert told in text
    assert "test graphs" not in text


def test_scores_stand_in_the_card_with_their_intervals():
    value_B = np.arange(1.0, 20.0)
    found = evaluation("label", value_B, value_B * 1.05).to_dict()
    text = card("message_passing", {**NOTES, "evaluation": found})
    assert "## On 19 test graphs that no fit saw" in text
    assert "| mape | 0.05 | 0.05 to 0.05 |" in text
    signed = evaluation("label", value_B - 9, value_B - 9).to_dict()
    assert "| pearson_log | not defined |  |" in card("boosting", {**NOTES, "evaluation": signed})


def test_a_surrogate_without_notes_has_a_card_too():
    text = card("boosting", {})
    assert "| attributes that it does not see | none |" in text
    assert "gives no intervals" in text


def few_trees(dags, target_B, sizes, seed) -> SurrogateModel:
    return fit_boosting(dags, target_B, sizes, seed=seed, settings=BoostingSettings(trees=5))


@pytest.fixture(scope="module", params=["boosting", "message_passing", "stacked"])
def fitted(request, real, sizes) -> SurrogateModel:
    if request.param == "boosting":
        return few_trees(real.dags, real.target_B, sizes, 0)
    if request.param == "stacked":
        return fit_stacked(real.dags, real.target_B, sizes, {"trees": few_trees}, folds=2)
    network = NetworkSettings(width=8, epochs=1)
    return fit_message_passing(real.dags, real.target_B, sizes, settings=network)


def test_a_saved_surrogate_predicts_the_same(fitted, real, tmp_path):
    save_surrogate(fitted, tmp_path / "model", {"unit": "ms"})
    loaded = load_surrogate(tmp_path / "model")
    assert loaded.family == fitted.family
    np.testing.assert_allclose(loaded.predict(real.dags), fitted.predict(real.dags), rtol=1e-6)
    np.testing.assert_allclose(loaded.spread(real.dags), fitted.spread(real.dags), rtol=1e-6)
    assert load_notes(tmp_path / "model") == {"unit": "ms"}


def test_damaged_weights_are_refused(fitted, tmp_path):
    save_surrogate(fitted, tmp_path / "model")
    weights = tmp_path / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match="damaged"):
        load_surrogate(tmp_path / "model")
    weights.unlink()
    with pytest.raises(CheckpointError, match="no such file"):
        load_surrogate(tmp_path / "model")


@pytest.mark.parametrize(
    ("key", "value"),
    [("format", 99), ("family", "oracle"), ("config", {}), ("config", {"sizes": {}})],
)
def test_a_foreign_description_is_refused(fitted, tmp_path, key, value):
    save_surrogate(fitted, tmp_path / "model")
    path = tmp_path / "model" / "surrogate.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(CheckpointError):
        load_surrogate(tmp_path / "model")


def test_a_missing_directory_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="give the directory of a fitted surrogate"):
        load_surrogate(tmp_path / "nothing")


@pytest.fixture(scope="module")
def fewest(real, sizes) -> SurrogateModel:
    few = BoostingSettings(trees=3, depth=2)
    return fit_boosting(real.dags, real.target_B, sizes, settings=few)


@pytest.fixture
def trees(fewest, tmp_path) -> Path:
    """Return the folder of saved boosted trees."""
    save_surrogate(fewest, tmp_path / "m")
    return tmp_path / "m"


def change_arrays(folder: Path, **changes) -> None:
    """Rewrite some arrays of a saved surrogate."""
    arrays = load_file(folder / "weights.safetensors")
    for name, change in changes.items():
        arrays[name] = np.ascontiguousarray(change(arrays[name]))
    save_file(arrays, folder / "weights.safetensors")


def with_value(value: int):
    """Return a change that writes a value into the first place."""

    def change(array: np.ndarray) -> np.ndarray:
        changed = array.copy()
        changed[0, 0] = value
        return changed

    return change


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"left": with_value(99)}, "'left' names a node that does not exist"),
        ({"right": with_value(-1)}, "'right' names a node that does not exist"),
        ({"feature": with_value(-3)}, "depth or feature out of bounds"),
        ({"value": lambda array: array[:, :-1]}, "arrays differ in shape"),
    ],
)
def test_trees_from_outside_lead_nowhere_else(trees, changes, words):
    change_arrays(trees, **changes)
    with pytest.raises(CheckpointError, match=words) as caught:
        load_surrogate(trees)
    assert str(caught.value).startswith(f"{trees}: the surrogate is damaged (")


def change(folder, path, value):
    """Give an entry of a surrogate's description another value."""
    facts = json.loads((folder / "surrogate.json").read_text())
    *outer, last = path
    functools.reduce(operator.getitem, outer, facts["config"])[last] = value
    (folder / "surrogate.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("depth",), 10**9),
        (("depth",), -1),
        (("sizes", "edge_types"), 10**9),
        (("sizes", "attributes"), []),
        (("sizes", "attributes"), [0, 3]),
        (("scale",), {}),
        (("start",), "x"),
    ],
)
def test_sizes_from_outside_are_bounded(trees, path, value):
    change(trees, path, value)
    with pytest.raises(CheckpointError, match="the surrogate is damaged"):
        load_surrogate(trees)


@pytest.mark.parametrize("settings", [{"width": 10**6}, {"rounds": 10**6}, {"width": 0}])
def test_networks_from_outside_are_bounded(real, sizes, tmp_path, settings):
    small = NetworkSettings(width=8, epochs=1)
    save_surrogate(
        fit_message_passing(real.dags[:4], real.target_B[:4], sizes, settings=small), tmp_path / "m"
    )
    path = tmp_path / "m" / "surrogate.json"
    facts = json.loads(path.read_text())
    facts["config"]["settings"] |= settings
    path.write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match="width or rounds out of bounds"):
        load_surrogate(tmp_path / "m")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r"is no JSON \(Expecting property name.*\); fit the surrogate again"),
        ("[1]", "is not of surrogate format 1 or 2"),
        ('{"format": 3}', "use the version of layerdag that wrote it"),
        (
            '{"format": 1, "family": "oracle", "config": {}}',
            "the family is 'oracle'; known are boosting, mess",
        ),
    ],
)
def test_a_description_that_is_none_is_told_by_its_file(trees, text, words):
    (trees / "surrogate.json").write_text(text)
    with pytest.raises(CheckpointError, match=words) as caught:
        load_surrogate(trees)
    assert str(caught.value).startswith(f"{trees / 'surrogate.json'}: ")


def test_notes_that_are_no_mapping_are_none(trees):
    facts = json.loads((trees / "surrogate.json").read_text())
    (trees / "surrogate.json").write_text(json.dumps({**facts, "notes": [1]}))
    assert load_notes(trees) == {}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("thesis.tex", "precious", "thesis.tex"),
        ("surrogate.json", "{", "no readable surrogate.json"),
        ("surrogate.json", '{"format": "1"}', "surrogate.json that is not of a surrogate"),
    ],
)
def test_only_surrogates_are_ever_replaced(trees, real, sizes, name, text, reason):
    (trees / name).write_text(text)
    before = {path.name: path.read_bytes() for path in trees.iterdir()}
    few = fit_boosting(real.dags, real.target_B, sizes, settings=BoostingSettings(trees=1, depth=1))
    with pytest.raises(UsageError, match=reason):
        save_surrogate(few, trees, overwrite=True)
    assert {path.name: path.read_bytes() for path in trees.iterdir()} == before


def test_a_surrogate_is_replaced_when_told(trees, real, sizes):
    few = fit_boosting(real.dags, real.target_B, sizes, settings=BoostingSettings(trees=1, depth=1))
    with pytest.raises(UsageError, match="overwrite"):
        save_surrogate(few, trees)
    save_surrogate(few, trees, overwrite=True)
    np.testing.assert_allclose(load_surrogate(trees).predict(real.dags), few.predict(real.dags))


def test_a_kill_at_any_step_leaves_the_older_surrogate_or_the_new_one(
    fewest, real, sizes, tmp_path
):
    few = fit_boosting(real.dags, real.target_B, sizes, settings=BoostingSettings(trees=1, depth=1))
    models = {"new": few, "old": fewest}

    def save(name: str) -> None:
        save_surrogate(models[name], tmp_path / "s", notes={"is": name}, card=name, overwrite=True)

    def look() -> str:
        folder = tmp_path / "s"
        name = str(load_notes(folder)["is"])
        assert (folder / "README.md").read_text() == name
        found = load_surrogate(folder).predict(real.dags)
        np.testing.assert_allclose(found, models[name].predict(real.dags))
        return name

    seen = states_when_killed(lambda: save("old"), lambda: save("new"), look)
    assert set(seen) == {"old", "new"}
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize("family", ["boosting", "message_passing"])
def test_families_are_fitted_by_name(real, sizes, family, monkeypatch):
    monkeypatch.setattr(BoostingSettings.__init__, "__defaults__", (2, 2, 0.05, 0.8, 0.3))
    monkeypatch.setattr(
        NetworkSettings.__init__,
        "__defaults__",
        tuple(
            {"epochs": 1, "width": 8}.get(field.name, field.default)
            for field in fields(NetworkSettings)
        ),
    )
    model = FAMILIES[family](real.dags[:6], real.target_B[:6], sizes, 3)
    assert model.family == family
    assert np.isfinite(model.predict(real.dags)).all()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("weights",), [1.0], "number of members or weights"),
        (("weights",), [float("nan"), 1.0], "a weight is no number"),
        (("members", 0, "family"), "stacked", "a member is an ensemble itself"),
        (("members", 1, "config"), {}, "'depth' is missing"),
        (("members",), [], "number of members"),
        (("difficulty", "depth"), 10**9, "depth or feature"),
    ],
)
def test_members_from_outside_are_checked(real, sizes, tmp_path, path, value, words):
    ensemble = fit_stacked(real.dags, real.target_B, sizes, {"trees": few_trees}, folds=2)
    save_surrogate(ensemble, tmp_path / "m")
    change(tmp_path / "m", path, value)
    with pytest.raises(CheckpointError, match=words):
        load_surrogate(tmp_path / "m")
