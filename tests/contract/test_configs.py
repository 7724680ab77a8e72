"""Every YAML file composes, and says what the code it configures says."""

import inspect
import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import yaml

from layerdag.cli.settings import as_plain, build, compose
from layerdag.cli.verbs._sample import generation_settings
from layerdag.cli.verbs._train import LoggerSettings, logger_settings
from layerdag.datasets import LOADERS, loader_of
from layerdag.models import model_config
from layerdag.models.autoregressive import FastConfig
from layerdag.models.diffusion import ReferenceConfig
from layerdag.sampling import GenerationSettings
from layerdag.training import TrainSettings

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
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


@pytest.mark.parametrize(("name", "cls"), [("fast", FastConfig), ("reference", ReferenceConfig)])
def test_model_file_is_the_tree_of_the_model_with_its_defaults(name: str, cls: type) -> None:
    listed = as_plain(compose("train", [f"model={name}"]).model)
    assert listed.pop("name") == name
    assert listed == json.loads(json.dumps(asdict(cls())))
    assert model_config(name, listed) == cls()


@pytest.mark.parametrize("name", LOADERS)
def test_data_file_lists_every_argument_with_its_default(name: str) -> None:
    listed = yaml.safe_load((CONFIGS / "data" / f"{name}.yaml").read_text())
    assert listed.pop("name") == name
    parameters = inspect.signature(loader_of(name)).parameters
    assert listed.keys() == parameters.keys()
    for key, parameter in parameters.items():
        required = parameter.default is inspect.Parameter.empty
        value = tuple(listed[key]) if isinstance(listed[key], list) else listed[key]
        assert value == ("???" if required else parameter.default), key


def test_every_data_set_has_a_file() -> None:
    assert {path.stem for path in CONFIGS.glob("data/*.yaml")} == set(LOADERS)


@pytest.mark.parametrize(
    "words",
    [
        ["data=latent_preferential", "data.seed=1", "data.num_train=4"],
        ["data=folder", "data.folder=x", "data.max_nodes=500"],
        ["data=dgrl", "data.folder=x", "data.label=vpu", "data.num_graphs=9"],
    ],
    ids=" ".join,
)
def test_documented_settings_of_data_sets_are_accepted(words: list[str]) -> None:
    compose("train", words)


def test_training_file_lists_every_setting() -> None:
    listed = as_plain(compose("train").training)
    assert set(listed) == {field.name for field in fields(TrainSettings)} - {"seed"}


def test_settings_in_python_have_the_defaults_of_the_command_line() -> None:
    train = compose("train")
    assert build(TrainSettings, {**as_plain(train.training), "seed": train.seed}, "") == (
        TrainSettings()
    )
    assert logger_settings(train) == LoggerSettings()
    assert generation_settings(compose("sample")) == GenerationSettings()
