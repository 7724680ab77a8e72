"""The settings of a data set, from a mapping (a YAML file, a run's record) to the loaded graphs."""

from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest
from raw_graphs import chain

from layerdag.datasets import data_config, load_config, loader_of
from layerdag.datasets._config import _CONFIGS, CorpusConfig, FolderConfig, LatentPreferentialConfig
from layerdag.datasets.files import write_json
from layerdag.errors import ConfigError


def test_the_name_decides_which_settings_there_are() -> None:
    assert data_config({"name": "corpus", "families": ["mlp"]}) == CorpusConfig(families=("mlp",))
    assert data_config({"name": "latent_preferential", "rho": 0.5, "num_train": 8}) == (
        LatentPreferentialConfig(rho=0.5, num_train=8)
    )


@pytest.mark.parametrize("values", [None, "corpus", ["corpus"], {"folder": "data"}])
def test_settings_without_a_name_are_refused(values: object) -> None:
    with pytest.raises(ConfigError, match="must be a group of settings with a name"):
        data_config(values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"name": "corpsu"}, "Did you mean 'corpus'"),
        ({"name": "corpus", "max_node": 5}, "Did you mean 'data.max_nodes'"),
        ({"name": "corpus", "max_nodes": "many"}, "data.max_nodes"),
        ({"name": "tpu_tile"}, "missing a required argument: 'folder'"),
    ],
)
def test_what_no_data_set_takes_is_one_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        data_config(values)


@pytest.mark.parametrize("name", ["corpus", "dgrl", "folder", "latent_preferential", "tpu_tile"])
def test_every_setting_is_an_argument_of_the_loader_of_that_name(name: str) -> None:
    settings = {f.name for f in fields(_CONFIGS[name])} - {"name"}
    assert settings <= set(signature(loader_of(name)).parameters)


def test_loading_from_settings_is_loading_by_hand(tmp_path: Path) -> None:
    for i in range(8):
        write_json(tmp_path / f"g{i}.json", chain(f"g{i}", "ab" * (i + 1)))
    data = load_config(FolderConfig(folder=tmp_path, held_out=0.5, max_nodes=14))
    counts = [len(data.graphs[split]) for split in ("train", "val", "test")]
    assert sum(counts) == 7
    assert [line.split(":")[0] for line in data.left_out] == ["g7"]
    assert data.split == loader_of("folder")(tmp_path, held_out=0.5, max_nodes=14).split
