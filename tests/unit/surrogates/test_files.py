import json
from pathlib import Path

import numpy as np
import pytest

from layerdag.errors import CheckpointError
from layerdag.graph import GraphSizes
from layerdag.surrogates import Labeled, load_notes, load_surrogate, save_surrogate
from layerdag.surrogates._base import SurrogateModel
from layerdag.surrogates._boosting import BoostingSettings, fit_boosting
from layerdag.surrogates._message_passing import NetworkSettings, fit_message_passing


@pytest.fixture(params=["boosting", "message_passing"])
def fitted(request: pytest.FixtureRequest, real: Labeled, sizes: GraphSizes) -> SurrogateModel:
    if request.param == "boosting":
        trees = BoostingSettings(trees=5)
        return fit_boosting(real.dags, real.target_B, sizes, settings=trees)
    network = NetworkSettings(width=8, epochs=1)
    return fit_message_passing(real.dags, real.target_B, sizes, settings=network)


def test_a_saved_surrogate_predicts_the_same(
    fitted: SurrogateModel, real: Labeled, tmp_path: Path
) -> None:
    save_surrogate(fitted, tmp_path / "model", {"unit": "ms"})
    loaded = load_surrogate(tmp_path / "model")
    assert loaded.family == fitted.family
    np.testing.assert_allclose(loaded.predict(real.dags), fitted.predict(real.dags), rtol=1e-6)
    assert load_notes(tmp_path / "model") == {"unit": "ms"}


def test_damaged_weights_are_refused(fitted: SurrogateModel, tmp_path: Path) -> None:
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
def test_a_foreign_description_is_refused(
    fitted: SurrogateModel, tmp_path: Path, key: str, value: object
) -> None:
    save_surrogate(fitted, tmp_path / "model")
    path = tmp_path / "model" / "surrogate.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(CheckpointError):
        load_surrogate(tmp_path / "model")


def test_a_missing_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="give the directory of a fitted surrogate"):
        load_surrogate(tmp_path / "nothing")
