"""Every YAML file composes, and says what the code it configures says."""

import json
from dataclasses import MISSING, asdict, fields
from pathlib import Path

import pytest
import yaml

from layerdag.cli.compose import compose, to_plain_dict
from layerdag.cli.sample_settings import SampleCommand, sample_config
from layerdag.cli.settings import ModelChoice, train_config
from layerdag.datasets.settings import CONFIGS as DATA_SETS, CorpusConfig
from layerdag.errors import ConfigError
from layerdag.models.config import FastConfig, ReferenceConfig
from layerdag.models.spec import model_config
from layerdag.runtime.settings import flattened
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.loggers import LoggerSettings
from layerdag.training.settings import TrainSettings

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
CHOICES = [
    f"{path.parent.name}={path.stem}"
    for path in sorted(CONFIGS.glob("*/*.yaml"))
    if path.parent.name != "experiment"
]
EXPERIMENTS = sorted(
    path.relative_to(CONFIGS / "experiment").with_suffix("").as_posix()
    for path in CONFIGS.glob("experiment/**/*.yaml")
)
ONLY_IN_PYTHON = {
    "alibaba": {"num_bins", "min_nodes", "seed"},
    "corpus": {"num_bins", "strategies"},
    "dgrl": {"num_bins", "seed"},
    "folder": {"num_bins"},
    "latent_preferential": {"num_val", "num_test"},
    "programs": {"operator_times"},
}
NEED_A_FOLDER = ("data=alibaba", "data=dgrl", "data=folder", "data=tpu_tile")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes_to_a_valid_tree(name):
    asked = train_config(compose("train", [f"experiment={name}", "out=x"]))
    assert isinstance(asked.model.config, FastConfig)


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_makes_a_tree(choice):
    folder = ["data.folder=x"] if choice in NEED_A_FOLDER else []
    asked = train_config(compose("train", [choice, *folder, "out=x"]))
    assert asked.training == TrainSettings()


def test_an_experiment_sets_what_lies_outside_of_its_groups():
    assert compose("train", ["experiment=pretrained"]).threads == 1
    assert (
        train_config(compose("train", ["experiment=ablation/no_conditions", "out=x"])).conditions
        == ()
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("data.max_nodes=many", r"'data\.max_nodes' must be a whole number, found 'many'"),
        ("data.families=mlp", r"'data\.families' must be a list, each entry a text, found 'mlp'"),
        (
            "training.optimizer.learning_rate=fast",
            r"'training\.optimizer\.learning_rate' must be a n",
        ),
        ("model.depth=1.5", r"'model\.depth' must be a whole number, found 1\.5"),
        ("model.encoder.messages=sum", r"'model\.encoder\.messages' must be 'mean' or 'none'"),
        ("logger.console=3", r"'logger\.console' must be true or false, found 3"),
        ("threads=all", r"'threads' must be a whole number, found 'all'"),
    ],
)
def test_a_value_of_another_type_is_one_sentence_with_its_place(word, message):
    with pytest.raises(ConfigError, match=message):
        train_config(compose("train", [word, "out=x"]))


@pytest.mark.parametrize(("name", "cls"), [("fast", FastConfig), ("reference", ReferenceConfig)])
def test_model_file_is_the_tree_of_the_model_with_its_defaults(name, cls):
    listed = to_plain_dict(compose("train", [f"model={name}"]).model)
    assert listed.pop("name") == name
    usual = flattened(json.loads(json.dumps(asdict(cls()))))
    assert flattened(listed).items() <= usual.items()
    assert model_config(name, listed) == cls()


@pytest.mark.parametrize("name", DATA_SETS)
def test_data_file_lists_every_setting_with_its_default(name):
    listed = yaml.safe_load((CONFIGS / "data" / f"{name}.yaml").read_text())
    needed = {f.name: Path("x") for f in fields(DATA_SETS[name]) if f.default is MISSING}
    usual = asdict(DATA_SETS[name](**needed)) | dict.fromkeys(needed, "???")
    for key in ONLY_IN_PYTHON.get(name, set()):
        del usual[key]
    assert listed == {key: list(v) if isinstance(v, tuple) else v for key, v in usual.items()}


def test_every_data_set_has_a_file():
    assert {path.stem for path in CONFIGS.glob("data/*.yaml")} == set(DATA_SETS)


def test_training_file_lists_every_setting():
    listed = to_plain_dict(compose("train").training)
    usual = asdict(TrainSettings())
    assert listed == {name: value for name, value in usual.items() if name != "seed"}


def test_settings_in_python_have_the_defaults_of_the_command_line():
    asked = train_config(compose("train", ["out=x"]))
    assert asked.training == TrainSettings()
    assert asked.logger == LoggerSettings()
    assert asked.model == ModelChoice("fast", FastConfig())
    assert asked.data == CorpusConfig()
    assert sample_config(compose("sample")).generation == GenerationSettings()
    assert sample_config(compose("sample")) == SampleCommand(
        generation=GenerationSettings(), parts=None, out=Path("outputs/samples")
    )
