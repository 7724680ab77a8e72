import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.cli import main
from layerdag.cli.output import (
    after_parts,
    after_sampling,
    after_training,
    announcement,
    before_parts,
)
from layerdag.datasets.sources import load_latent_preferential
from layerdag.models import build_model, spec_for
from layerdag.sampling import GenerationSettings, PartSettings, write_parts, write_samples
from layerdag.training import TrainResult


def test_a_run_says_what_it_trains_on_what() -> None:
    data = load_latent_preferential(num_train=3, num_val=2, num_test=1)
    spec = spec_for(data, "fast", {"width": 32, "depth": 1})
    told = announcement(replace(data, left_out=("g7: is empty", "g9")), spec, torch.device("cpu"))
    count = sum(parameter.numel() for parameter in build_model(spec).parameters())
    assert "3 train, 2 val, 1 test graphs" in told
    assert "left out: 2 graphs, the first: g7: is empty" in told
    assert f"fast, {count:,} parameters, on cpu" in told
    assert "nats per decision" in told


def test_a_finished_run_says_how_to_sample_from_it() -> None:
    result = TrainResult("patience", 40, 3.2, {}, Path("my runs/a/best"), Path("my runs/a/last"))
    told = after_training(result)
    assert "trained 40 steps in 3 s" in told
    assert "trained 1 step in 3 s" in after_training(replace(result, step=1))
    assert shlex.split(told)[-1] == "checkpoint=my runs/a/best"


@pytest.mark.parametrize("checkpoint", [chain_checkpoint, job_checkpoint])
def test_the_commands_that_samples_suggest_run(checkpoint, tmp_path: Path, monkeypatch) -> None:
    settings = GenerationSettings(num=2, best_of=1, max_nodes=12)
    told = after_sampling(write_samples(checkpoint(tmp_path), settings, tmp_path / "out"))
    assert told.startswith("wrote 2 samples to ")
    monkeypatch.chdir(tmp_path)
    check, look = told.split("Check all: layerdag ")[1].split("; look at the first: layerdag ")
    assert main(shlex.split(check)) in (0, 1)
    assert main(shlex.split(look)) == 0
    assert (tmp_path / "sample.svg").is_file()


def test_sample_leaves_its_json_alone_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = chain_checkpoint(tmp_path).path
    words = [f"checkpoint={folder}", "num=1", "best_of=1", "max_nodes=8", f"out={tmp_path}/s"]
    assert main(["sample", *words]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["num"] == 1
    assert "wrote 1 sample to " in err


def test_more_shards_than_parts_are_told_which_size_fits() -> None:
    told = before_parts(400, PartSettings(part_size=1000, shard="1/2"))
    assert "work for only 1 of 2 shards" in told
    fitting = int(told.split("part_size=")[1].split()[0])
    assert before_parts(400, PartSettings(part_size=fitting, shard="1/2")) == ""
    assert before_parts(400, PartSettings(part_size=1000)) == ""


def test_the_commands_that_parts_suggest_run(tmp_path: Path, monkeypatch) -> None:
    settings = GenerationSettings(num=5, best_of=1, max_nodes=12)
    out = tmp_path / "my samples"
    checkpoint = job_checkpoint(tmp_path)
    told = [
        after_parts(
            write_parts(checkpoint, settings, out, PartSettings(part_size=2, shard=share)).parent
        )
        for share in ("1/2", "0/2")
    ]
    assert told[0].startswith(f"1 of 3 parts are in {out}; the same command writes what is missing")
    assert told[1].startswith(f"5 samples in 3 parts are in {out}. ")
    check, look = told[1].split("Check all: layerdag ")[1].split("; look at them: layerdag ")
    assert main(shlex.split(check)) in (0, 1)
    assert main(shlex.split(look)) == 0
