import json
from pathlib import Path

import pytest
import torch
from warm_starts import TINY, data_of, jobs

import layerdag as ld
from layerdag.api import warm_start
from layerdag.errors import CheckpointError, ConfigError
from layerdag.sampling import checkpoint_fingerprint
from layerdag.training import OptimizerConfig, Origin

SETTINGS = ld.TrainSettings(max_steps=1, evaluate_every=1, optimizer=OptimizerConfig(1e-9))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on some jobs."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    settings = ld.TrainSettings(max_steps=2, evaluate_every=2)
    ld.train(data_of(jobs()), out=folder, settings=settings, **TINY["fast"])
    return folder


def test_a_run_starts_from_another_ones_weights_and_says_so(run: Path, tmp_path: Path) -> None:
    data = data_of(jobs(10, first=4))
    checkpoint = ld.train(data, init=run, out=tmp_path / "second", settings=SETTINGS)
    first = ld.load_checkpoint(run / "best")
    assert checkpoint.spec.arguments["width"] == 32
    for name in ("encoder.0.mix.weight", "heads.pointer.query.weight"):
        found, wanted = checkpoint.model.state_dict()[name], first.model.state_dict()[name]
        assert torch.allclose(found, wanted, atol=1e-6)
    fingerprint = checkpoint_fingerprint(run / "best")
    origin = Origin("first", fingerprint, 2, first.meta.data_fingerprint)
    assert checkpoint.meta.origin == origin
    assert str(run.parent) not in (tmp_path / "second/best/meta.json").read_text()
    assert ld.load_checkpoint(run / "best").meta.origin is None


def test_the_sentence_tells_what_was_mapped(run: Path) -> None:
    start = warm_start(run / "last", data_of(jobs()))
    assert str(start).startswith("starts from first (step 2): operators 5 of 5 by name")
    assert len(ld.sample(run / "best", num=1, max_nodes=5, best_of=1)) == 1


def test_the_shipped_checkpoint_has_a_name() -> None:
    start = warm_start("pretrained", data_of(jobs()))
    assert start.start.origin.name == "pretrained"
    assert start.spec.arguments["width"] == 128


def test_what_cannot_be_started_from_is_refused(run: Path, tmp_path: Path) -> None:
    data = data_of(jobs())
    with pytest.raises(ConfigError, match=r"model.depth=2 contradicts .* depth=1"):
        ld.train(data, init=run, depth=2)
    with pytest.raises(ConfigError, match="'reference' cannot start from"):
        ld.train(data, "reference", init=run)
    with pytest.raises(CheckpointError, match="is not a checkpoint directory"):
        ld.train(data, init=tmp_path / "nothing")


def test_weights_that_are_not_finite_are_refused(run: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    bad = tmp_path / "bad"
    bad.mkdir()
    for file in (run / "best").iterdir():
        (bad / file.name).write_bytes(file.read_bytes())
    weights = load_file(bad / "weights.safetensors")
    weights["heads.context.bias"][0] = float("nan")
    save_file(weights, bad / "weights.safetensors")
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        warm_start(bad, data_of(jobs()))


def test_an_origin_that_is_none_is_read_as_none(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (run / "best").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    meta = json.loads((copy / "meta.json").read_text())
    (copy / "meta.json").write_text(json.dumps({**meta, "origin": ["x"]}))
    assert ld.load_checkpoint(copy).meta.origin is None
