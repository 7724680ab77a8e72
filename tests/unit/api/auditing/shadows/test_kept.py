"""Losses of shadow models on disk."""

from pathlib import Path

import numpy as np
import pytest

from layerdag.api.auditing.shadows import ShadowModel, held_folder, kept_models
from layerdag.errors import UsageError


def trained(shadow: int, path: Path) -> ShadowModel:
    path.mkdir()
    return ShadowModel(np.array([float(shadow), np.nan]), 10 + shadow, 1.5)


def test_models_are_kept_without_weights_and_damaged_files_are_made_again(tmp_path: Path) -> None:
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


def test_losses_of_a_release_of_before_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "00000.npz", loss=np.ones(2))
    (model,) = kept_models(tmp_path, 1, 2, trained)
    assert model.loss_K.tolist() == [1.0, 1.0]
    assert model.steps == 0


def test_losses_of_another_audit_are_discarded_and_other_folders_are_left_alone(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "kept"
    for target, left in (("a", 0), ("a", 1), ("b", 0)):
        with held_folder(folder, {"weights": target}) as held:
            assert len(list(held.glob("*.npz"))) == left
            np.savez(held / "00000.npz", loss=np.ones(2))
    assert "stays with the owner" in (folder / "README.txt").read_text()
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="thesis"), held_folder(folder, {"weights": "b"}):
        pass
    other = tmp_path / "other"
    other.mkdir()
    (other / "00000.npz").write_bytes(b"")
    with pytest.raises(UsageError, match=r"has no target\.json"), held_folder(other, {}):
        pass
