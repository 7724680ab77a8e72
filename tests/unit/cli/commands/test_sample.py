"""``layerdag sample`` in this process, from untrained models of a moment."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.cli.commands import sample as _sample
from layerdag.cli.compose import compose
from layerdag.cli.main import main
from layerdag.cli.sample_settings import sample_config
from layerdag.errors import ConfigError, UsageError
from layerdag.samples.reader import iter_samples
from layerdag.sampling.parts import PartSettings
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import checkpoint_path, pretrained_checkpoint


@pytest.fixture(scope="module")
def chains(tmp_path_factory) -> Path:
    return chain_checkpoint(tmp_path_factory.mktemp("chains")).path


def sample(checkpoint: Path, out: Path, *words: str) -> int:
    usual = ("num=2", "best_of=1", "max_nodes=8", "threads=1", "device=cpu")
    return main(["sample", f"checkpoint={checkpoint}", f"out={out}", *usual, *words])


def test_json_on_standard_output_names_the_manifest_and_the_rest_goes_to_standard_error(
    chains, tmp_path, capsys
):
    assert sample(chains, tmp_path / "s", "format=json", "seed=3", "--json") == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told == {"manifest": str(tmp_path / "s" / "manifest.json"), "num": 2, "seed": 3}
    samples = json.loads(Path(told["manifest"]).read_text())["samples"]
    assert [entry["seed"] for entry in samples] == [3, 4]
    assert all((tmp_path / "s" / entry["file"]).suffix == ".json" for entry in samples)
    # Before the work: how much it will be.
    assert said.err.startswith("2 graphs: about 3 files and ")


def test_a_label_beyond_the_training_data_is_warned_of(chains, tmp_path, capsys):
    assert sample(chains, tmp_path / "near", "label=4.5") == 0
    assert "layerdag: warning" not in capsys.readouterr().err
    assert sample(chains, tmp_path / "far", "label=1e9") == 0
    assert "layerdag: warning: " in capsys.readouterr().err


def test_samples_are_replaced_only_when_told(chains, tmp_path, capsys):
    out = tmp_path / "s"
    assert sample(chains, out) == 0
    before = (out / "manifest.json").read_bytes()
    assert sample(chains, out, "seed=9") == 2
    assert "overwrite=true" in capsys.readouterr().err
    assert (out / "manifest.json").read_bytes() == before
    assert sample(chains, out, "seed=9", "overwrite=true") == 0
    assert json.loads((out / "manifest.json").read_text())["samples"][0]["seed"] == 9


def test_a_dry_run_prints_the_settings_and_samples_nothing(chains, tmp_path, capsys):
    assert sample(chains, tmp_path / "s", "dry_run=true", "guidance=2") == 0
    shown = OmegaConf.create(capsys.readouterr().out)
    assert (shown.num, shown.guidance, shown.checkpoint) == (2, 2, str(chains))
    assert not (tmp_path / "s").exists()


def test_a_dry_run_checks_conditions(chains, tmp_path, capsys):
    assert sample(chains, tmp_path / "s", "label=1e9", "--dry-run") == 0
    assert "'label' is 1e+09, but most graphs" in capsys.readouterr().err
    assert sample(chains, tmp_path / "s", "+conditions.color=red", "--dry-run") == 1
    assert "color" in capsys.readouterr().err


def test_jobs_of_more_ranks_than_allowed_are_refused_before_any_is_sampled(tmp_path, capsys):
    job = job_checkpoint(tmp_path).path
    assert sample(job, tmp_path / "s", "ranks=64", "max_ranks=32") != 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "64" in said.err
    assert not (tmp_path / "s").exists()


def test_every_setting_reaches_the_generation():
    words = ["num=3", "seed=4", "ranks=2", "guidance=3", "best_of=5", "labels=predicted"]
    words += [
        "max_nodes=6",
        "+batch_size=7",
        "processes=2",
        "max_ranks=8",
        "max_bytes=9",
        "label=0.5",
    ]
    found = sample_config(
        compose("sample", [*words, "+conditions.family=gpt", "+steps=11"])
    ).generation
    assert (found.num, found.seed, found.ranks, found.guidance) == (3, 4, 2, 3.0)
    assert (found.best_of, found.labels, found.max_nodes, found.batch_size) == (
        5,
        "predicted",
        6,
        7,
    )
    assert (found.limits.max_ranks, found.limits.max_bytes, found.steps) == (8, 9, 11)
    assert found.processes == 2
    assert found.conditions == {"family": "gpt", "label": 0.5}


@pytest.mark.parametrize("name", ["num", "seed", "max_nodes", "max_ranks", "best_of"])
@pytest.mark.parametrize("value", ["1.5", "true", "many"])
def test_numbers_of_things_are_whole(name, value):
    config = compose("sample", [])
    config[name] = OmegaConf.create(f"x: {value}").x
    with pytest.raises(ConfigError, match=f"'{name}' must be a whole number( or null)?, found "):
        sample_config(config)


@pytest.mark.parametrize("words", [["num=0"], ["max_nodes=0"], ["best_of=0"], ["labels=mine"]])
def test_numbers_out_of_bounds_are_wrong_use(words):
    with pytest.raises(UsageError):
        sample_config(compose("sample", words))


def test_the_checkpoint_of_the_package_has_a_name():
    assert checkpoint_path("pretrained") == pretrained_checkpoint()
    assert checkpoint_path("outputs/x") == Path("outputs/x")


def test_samples_in_parts_come_from_one_command_for_each_shard(chains, tmp_path, capsys):
    out = tmp_path / "s"
    words = ("num=5", "format=tar", "part_size=2", "members=json")
    assert sample(chains, out, *words, "shard=0/2", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"manifest": str(out / "samples.json"), "num": 5, "seed": 0}
    assert "of which this is shard 0 of 2" in said.err
    assert "2 of 3 parts are in" in said.err
    assert sample(chains, out, *words, "shard=1/2") == 0
    assert "5 samples in 3 parts are in" in capsys.readouterr().err
    assert [found.seed for found in iter_samples(out)] == [0, 1, 2, 3, 4]


def test_under_torchrun_the_share_is_that_of_the_process(chains, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sample(chains, tmp_path, "num=4", "format=tar", "part_size=2", "shard=auto") == 0
    assert [found.seed for found in iter_samples(tmp_path)] == [2, 3]


@pytest.mark.parametrize("word", ["shard=0/2", "part_size=7", "members=json"])
def test_settings_of_parts_without_parts_are_one_sentence(word):
    with pytest.raises(UsageError, match="is of samples in parts; ask for format=tar"):
        sample_config(compose("sample", [word]))
    assert sample_config(compose("sample", [word, "format=tar"])).parts is not None
    assert sample_config(compose("sample")).parts is None


@pytest.mark.parametrize(
    ("num", "asked", "processors", "threads", "gigabytes", "found"),
    [
        (1000, None, 4, 1, 64, 4),
        (1000, None, 64, 1, 64, 8),
        (1000, None, 8, 4, 64, 2),
        (1000, None, 2, 4, 64, 1),
        (1000, None, 8, 1, 5, 2),
        (1000, None, 8, 1, 1, 1),
        (1000, 3, 2, 1, 1, 3),
        # Few samples are not worth the start of more processes.
        (32, None, 64, 1, 1000, 2),
        (31, None, 64, 1, 1000, 1),
        (1, None, 64, 1, 1000, 1),
    ],
)
def test_a_process_draws_for_each_processor_where_there_is_memory(
    monkeypatch, num, asked, processors, threads, gigabytes, found
):
    monkeypatch.setattr(_sample.os, "cpu_count", lambda: processors)
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    monkeypatch.setattr("layerdag.runtime.reading.available_memory", lambda: gigabytes * 10**9)
    settings = GenerationSettings(num=num, processes=asked)
    assert _sample._processes(on_device("cpu"), settings, None) == found


def test_one_process_draws_parts_unless_more_are_asked_for():
    parts = PartSettings("tar")
    assert _sample._processes(on_device("cpu"), GenerationSettings(), parts) == 1
    assert _sample._processes(on_device("cpu"), GenerationSettings(processes=2), parts) == 2


def test_one_process_draws_on_an_accelerator():
    cuda = on_device("cuda")
    assert _sample._processes(cuda, GenerationSettings(), None) == 1
    assert _sample._processes(cuda, GenerationSettings(processes=1), None) == 1
    with pytest.raises(UsageError, match="processes=2 draw on a CPU, and the device is cuda"):
        _sample._processes(cuda, GenerationSettings(processes=2), None)


def on_device(kind: str) -> SimpleNamespace:
    """Return what stands for a checkpoint whose weights are on a device."""
    weight = SimpleNamespace(device=SimpleNamespace(type=kind))
    return SimpleNamespace(model=SimpleNamespace(parameters=lambda: iter([weight])))
