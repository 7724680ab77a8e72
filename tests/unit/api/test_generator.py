import gc
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from private_jobs import PrivateJobs, private_jobs

import layerdag as ld
from layerdag.datasets.settings import LatentPreferentialConfig
from layerdag.dp.private_run import private_run
from layerdag.errors import ConfigError, UsageError

TINY = {"width": 32, "depth": 1}
SETTINGS = ld.TrainSettings(max_steps=2, evaluate_every=2)


@pytest.fixture(scope="module")
def data() -> ld.GraphDataset:
    return ld.load_dataset("latent_preferential", num_train=6, num_val=3, num_test=3)


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """Return a folder of its own for the temporary files of a test.

    The first optimizer of a process makes PyTorch import its compiler, which makes an empty cache
    folder among the temporary files. That one is none of ours, so it is made beforehand.
    """
    torch.optim.SGD([torch.zeros(1)], lr=1.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_training_without_a_folder_leaves_no_file_behind(data, temporary):
    checkpoint = ld.train(data, settings=SETTINGS, **TINY)
    assert checkpoint.meta.step == 2
    assert checkpoint.meta.split == data.split
    assert len(ld.sample(checkpoint, num=2, max_nodes=12)) == 2
    assert ld.write_samples(checkpoint, temporary / "samples", num=1, max_nodes=12).is_file()
    del checkpoint
    gc.collect()
    assert [path.name for path in temporary.iterdir() if path.is_dir()] == ["samples"]


def test_a_folder_keeps_the_run(data, tmp_path):
    ld.train(data, out=tmp_path / "run", settings=SETTINGS, **TINY)
    assert (tmp_path / "run" / "best" / "weights.safetensors").is_file()
    assert ld.load_checkpoint(tmp_path / "run" / "best").spec.arguments["width"] == 32
    with pytest.raises(UsageError, match="holds a run already"):
        ld.train(data, out=tmp_path / "run", settings=SETTINGS, **TINY)
    ld.train(data, out=tmp_path / "run", settings=SETTINGS, overwrite=True, **TINY)


def test_what_cannot_be_trained_is_refused(data):
    with pytest.raises(ConfigError, match=r"no model 'fsat'\. Did you mean 'fast'"):
        ld.train(data, "fsat")
    with pytest.raises(
        ConfigError, match=r"Unknown setting 'model\.widht'\. Did you mean 'model\.width'"
    ):
        ld.train(data, widht=32)
    with pytest.raises(UsageError, match="is no data set"):
        ld.train("no/such/folder")


def test_a_training_that_fails_leaves_no_folder(data, temporary, monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("layerdag.api.generator.train_run", fails)
    with pytest.raises(ZeroDivisionError):
        ld.train(data, settings=SETTINGS, **TINY)
    assert list(temporary.iterdir()) == []


PRIVATE = ld.Privacy(epsilon=math.inf, steps=2)


@pytest.fixture(scope="module")
def mine(tmp_path_factory) -> PrivateJobs:
    return private_jobs(tmp_path_factory.mktemp("public"))


def test_private_tuning_is_a_checkpoint_with_its_promise(mine, tmp_path):
    checkpoint = ld.train(mine.data, init=mine.base.path, privacy=PRIVATE, out=tmp_path / "run")
    assert checkpoint.meta.privacy is not None
    assert checkpoint.meta.privacy.steps == 2
    assert checkpoint.meta.split is None
    assert len(ld.sample(checkpoint, num=1, max_nodes=12)) == 1
    with pytest.raises(UsageError, match="holds a run already"):
        ld.train(mine.data, init=mine.base.path, privacy=PRIVATE, out=tmp_path / "run")


def test_privacy_without_epsilon_is_ordinary_training(data):
    checkpoint = ld.train(data, settings=SETTINGS, privacy=ld.Privacy(), **TINY)
    assert checkpoint.meta.privacy is None


def test_what_would_break_the_promise_is_refused(mine, data):
    base = mine.base.path
    with pytest.raises(ConfigError, match="init=FOLDER"):
        ld.train(mine.data, privacy=PRIVATE)
    with pytest.raises(ConfigError, match="the model is that of init; leave out width"):
        ld.train(mine.data, init=base, privacy=PRIVATE, width=64)
    with pytest.raises(ConfigError, match=r"set privacy\.steps"):
        ld.train(mine.data, init=base, privacy=PRIVATE, settings=SETTINGS)
    with pytest.raises(ConfigError, match="learned from its graphs, which would reveal them"):
        ld.train(data, init=base, privacy=PRIVATE)
    with pytest.raises(ConfigError, match="data=latent_preferential can only be read"):
        private_run(LatentPreferentialConfig(), base, PRIVATE, Path())


def test_owners_are_read_from_their_table(mine, tmp_path):
    names = mine.data.names["train"]
    table = tmp_path / "owners.csv"
    table.write_text("graph,owner\n" + "".join(f"{n},team-{i % 3}\n" for i, n in enumerate(names)))
    privacy = replace(PRIVATE, unit="owner", owners=table)
    assert private_run(mine.data, mine.base.path, privacy, tmp_path).units.count == 3
