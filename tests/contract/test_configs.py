"""Every YAML file composes, and says what the code it configures says."""

import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from layerdag.cli.settings import as_plain, build, compose
from layerdag.models.autoregressive import FastLayerDAG
from layerdag.models.diffusion import ReferenceLayerDAG
from layerdag.training import TrainSettings

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
# Null in the file: build_spec settles them by the data set.
BY_DATA = {"plans"}
CHOICES = [
    f"{path.parent.name}={path.stem}"
    for path in sorted(CONFIGS.glob("*/*.yaml"))
    if path.parent.name != "experiment"
]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes(choice: str) -> None:
    group = choice.split("=")[0]
    assert group in compose("train", [choice])


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("experiment/*.yaml")), ids=lambda p: p.stem)
def test_every_experiment_composes_to_valid_settings(path: Path) -> None:
    config = compose("train", [f"experiment={path.stem}"])
    build(TrainSettings, config.training, "training")


@pytest.mark.parametrize(
    ("name", "cls"), [("fast", FastLayerDAG), ("reference", ReferenceLayerDAG)]
)
def test_model_file_lists_every_argument_with_its_default(name: str, cls: type) -> None:
    listed = as_plain(compose("train", [f"model={name}"]).model)
    listed.pop("name")
    parameters = inspect.signature(cls).parameters
    expected = {k: p.default for k, p in parameters.items() if k not in ("sizes", "statistics")}
    expected |= dict.fromkeys(BY_DATA & expected.keys())
    assert listed == expected


def test_training_file_lists_every_setting() -> None:
    listed = as_plain(compose("train").training)
    assert set(listed) == {field.name for field in fields(TrainSettings)} - {"seed"}
