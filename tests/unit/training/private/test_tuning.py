import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from private_jobs import PrivateJobs, nats_of

from layerdag.errors import UsageError
from layerdag.training import load_checkpoint
from layerdag.training.monitoring import Logger
from layerdag.training.private import (
    OWNER_ONLY,
    Adapters,
    Privacy,
    PrivateResult,
    SecretGenerator,
    Units,
    tune,
)

FEW = Privacy(epsilon=2.0, delta=1e-2, steps=4, sampling_rate=0.5)
WITHOUT_NOISE = replace(FEW, epsilon=math.inf, steps=10, learning_rate=2.0)


class Kept(Logger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.figures: list[Mapping[str, float]] = []

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.figures.append(values)


def tuned(mine: PrivateJobs, folder: Path, privacy: Privacy, key: int | None = 1) -> PrivateResult:
    return tune(mine.run(folder, privacy), generator=SecretGenerator(key))


def weights_of(result: PrivateResult) -> dict[str, torch.Tensor]:
    return load_checkpoint(result.run.best).model.state_dict()


def test_the_checkpoint_is_an_ordinary_one_with_its_promise(mine: PrivateJobs, tmp_path: Path):
    result = tuned(mine, tmp_path, FEW, key=None)
    checkpoint = load_checkpoint(result.run.best)
    assert checkpoint.meta.privacy == result.guarantee
    assert result.guarantee.epsilon == 2.0
    assert result.guarantee.delta == 1e-2
    assert 0 < result.guarantee.trained_parameters < 5000
    assert checkpoint.spec == mine.base.spec
    assert "secret key" in result.guarantee.noise


def test_nothing_else_in_the_checkpoint_follows_from_the_private_graphs(
    mine: PrivateJobs, tmp_path: Path
):
    """Everything but the tuned weights is the same whatever the private graphs are."""
    other = replace(mine, data=replace(mine.data, graphs={
        **mine.data.graphs, "train": mine.data.graphs["train"][::-1][:-1]
    }, names={**mine.data.names, "train": mine.data.names["train"][::-1][:-1]}))  # fmt: skip
    files = {}
    for name, jobs in (("one", mine), ("other", other)):
        best = tuned(jobs, tmp_path / name, FEW).run.best
        files[name] = {f.name: f.read_bytes() for f in best.iterdir()}
    changed = {name for name in files["one"] if files["one"][name] != files["other"][name]}
    assert changed == {"weights.safetensors"}
    meta = json.loads(files["one"]["meta.json"])
    assert meta["split"] is None
    assert meta["data_fingerprint"] == ""
    assert meta["metrics"] == {}


def test_only_the_few_parameters_change(mine: PrivateJobs, tmp_path: Path):
    result = tuned(mine, tmp_path, FEW)
    before, after = (
        mine.base.model.state_dict(),
        load_checkpoint(result.run.best).model.state_dict(),
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith("heads.") for name in changed), changed
    assert all(name.endswith((".bias", ".project.weight")) for name in changed), changed


def test_without_noise_it_learns(mine: PrivateJobs, tmp_path: Path):
    result = tuned(mine, tmp_path, WITHOUT_NOISE)
    batch = mine.data.batch("train")
    after = nats_of(load_checkpoint(result.run.best).model, batch)
    assert after < 0.95 * nats_of(mine.base.model, batch)
    assert result.guarantee.epsilon is None
    assert "nothing is promised" in str(result.guarantee)


def test_a_step_without_units_is_noise_of_the_promised_size(mine: PrivateJobs, tmp_path: Path):
    class Nobody(SecretGenerator):
        """Draws nobody into the sample."""

        def coins(self, count: int, rate: float) -> np.ndarray:
            return np.zeros(count, bool)

    one = replace(FEW, steps=1, rank=0, momentum=0.0)
    result = tune(mine.run(tmp_path, one), generator=Nobody(1))
    before, after = mine.base.model.state_dict(), weights_of(result)
    model = load_checkpoint(mine.base.path).model
    adapters = Adapters(model, 0, seed=0)
    owner = {id(p): name for name, p in model.named_parameters()}
    names = [owner[id(parameter)] for parameter in adapters.parameters]
    change = torch.cat([(after[name] - before[name]).flatten() for name in names])
    is_tuned = adapters.scale_P > 0
    change = change[is_tuned] / adapters.scale_P[is_tuned]
    usual = one.sampling_rate * mine.units.count
    wanted = one.learning_rate * result.guarantee.noise_multiplier / usual
    assert float(change.std()) == pytest.approx(wanted, rel=0.2)


def test_the_same_key_gives_the_same_weights_and_a_secret_one_others(
    mine: PrivateJobs, tmp_path: Path
):
    folders = [
        tuned(mine, tmp_path / str(i), FEW, key).run.best for i, key in enumerate((1, 1, None))
    ]
    first, again, other = ((f / "weights.safetensors").read_bytes() for f in folders)
    assert first == again
    assert first != other


def test_figures_are_marked_as_the_owner_s(mine: PrivateJobs, tmp_path: Path):
    logger = Kept()
    tune(mine.run(tmp_path, FEW), loggers=[logger], generator=SecretGenerator(1))
    assert len(logger.figures) == FEW.steps
    assert all(name.startswith(OWNER_ONLY) for figures in logger.figures for name in figures)
    assert all(0 <= figures[f"{OWNER_ONLY}clipped"] <= 1 for figures in logger.figures)


def test_owners_count_as_one_each(mine: PrivateJobs, tmp_path: Path):
    run = mine.run(tmp_path, replace(FEW, unit="owner", owners=Path("owners.csv")))
    units = Units.of(mine.data.batch("train"), ["a", "b", "c"] * 4)
    result = tune(replace(run, units=units), generator=SecretGenerator(1))
    assert result.guarantee.unit == "owner"
    assert result.guarantee.neighbors.startswith("one owner replaced by an empty one")


def test_an_audit_finds_canaries_where_nothing_hides_them(mine: PrivateJobs, tmp_path: Path):
    """The audit can fail: 48 canaries give at most 2.02; one wrong guess leaves 1.50 of it."""
    plain = replace(WITHOUT_NOISE, delta=1e-5, clip=1e6, learning_rate=3e3, canaries=48)
    bound = tuned(mine, tmp_path / "plain", plain).guarantee.lower_bound
    assert bound is not None
    assert bound > 1.4
    noisy = replace(FEW, canaries=48)
    bound = tuned(mine, tmp_path / "noisy", noisy).guarantee.lower_bound
    assert bound is not None
    assert bound <= 2.0


def test_a_run_that_stands_there_is_not_replaced(mine: PrivateJobs, tmp_path: Path):
    run = mine.run(tmp_path, FEW)
    tune(run, generator=SecretGenerator(1))
    with pytest.raises(UsageError, match="best"):
        tune(replace(run, overwrite=False), generator=SecretGenerator(1))
