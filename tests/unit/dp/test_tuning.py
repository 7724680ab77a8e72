import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from private_jobs import PrivateJobs, nats_of

from layerdag.dp.gradients import Adapters, SecretGenerator
from layerdag.dp.settings import Privacy
from layerdag.dp.tuning import (
    OWNER_ONLY,
    Canaries,
    PrivateResult,
    canary_graphs,
    guess_half,
    lower_bound,
    scores,
    tune_privately,
)
from layerdag.dp.units import Units
from layerdag.errors import UsageError
from layerdag.training.checkpoint import load_checkpoint
from layerdag.training.loggers import Logger

RNG = np.random.default_rng(0)
GRADIENTS = RNG.standard_normal((12, 40)) + 3 * RNG.standard_normal(40)
OTHERS = RNG.standard_normal((2, 40))
EVEN = 0.01 * np.eye(40)
COINS = np.arange(12) % 3 == 0


def test_who_took_part_is_seen_without_noise_and_hidden_by_it():
    change = -GRADIENTS[COINS].sum(0)
    score = scores(GRADIENTS, change, OTHERS, EVEN)
    assert score[COINS].min() > score[~COINS].max()
    change = -GRADIENTS[COINS].sum(0)
    shifted = change + np.array([200.0, -300.0]) @ OTHERS
    assert np.allclose(
        scores(GRADIENTS, shifted, OTHERS, EVEN), scores(GRADIENTS, change, OTHERS, EVEN)
    )
    change = -GRADIENTS[COINS].sum(0) + 1000 * RNG.standard_normal(40)
    score = scores(GRADIENTS, change, OTHERS, EVEN)
    assert score[COINS].min() < score[~COINS].max()


def test_directions_that_others_move_by_chance_count_less():
    """Loud noise in some parameters hides nobody whose gradient lies in others, too."""
    loud_P = np.where(np.arange(40) < 20, 30.0, 0.01)
    change = -GRADIENTS[COINS].sum(0) + loud_P * RNG.standard_normal(40)
    aware = scores(GRADIENTS, change, OTHERS, np.diag(loud_P**2))
    unaware = scores(GRADIENTS, change, OTHERS, EVEN)
    assert aware[COINS].min() > aware[~COINS].max()
    assert unaware[COINS].min() < unaware[~COINS].max()


def test_parameters_that_never_vary_do_no_harm():
    still_PP = np.diag(np.r_[np.ones(39), 0.0])
    change = -GRADIENTS[COINS].sum(0)
    assert np.isfinite(scores(GRADIENTS, change, OTHERS, still_PP)).all()


def _drawn(mine: PrivateJobs, count: int) -> Canaries:
    adapters = Adapters(load_checkpoint(mine.base.path).model, 1, seed=0)
    return Canaries.drawn(adapters, count, SecretGenerator(0))


def test_canaries_are_the_same_strange_graphs_each_time(mine):
    spec = mine.base.spec
    graphs = canary_graphs(spec.statistics, spec.sizes, 12)
    rows = {tuple(row) for row in graphs.x_NA.tolist()}
    assert graphs.num_graphs == 12
    assert len(rows) >= 10
    for row in rows:
        assert all(
            spec.statistics.attributes[attribute][code] > 0 for attribute, code in enumerate(row)
        )
    assert bool(graphs.numeric_BC.isnan().all())
    assert torch.equal(graphs.x_NA, canary_graphs(spec.statistics, spec.sizes, 12).x_NA)


def test_codes_of_a_canary_go_together(mine):
    """Attribute 1 of a node of kind k may be k alone."""
    statistics = replace(
        mine.base.spec.statistics,
        attributes=((5, 5, 5), (5, 5, 5)),
        allowed_codes=((((0,), (1,), (2,)),), ()),
    )
    sizes = replace(mine.base.spec.sizes, attributes=(3, 3))
    x_NA = canary_graphs(statistics, sizes, 20).x_NA
    assert torch.equal(x_NA[:, 0], x_NA[:, 1])
    assert len(x_NA[:, 0].unique()) == 3


def test_canaries_pull_in_directions_of_their_own(mine):
    gradient_MP = _drawn(mine, 12).gradient_MP
    own_MP = gradient_MP - gradient_MP.mean(0)
    strength = np.linalg.svd(own_MP, compute_uv=False)
    assert (strength > 0.02 * strength[0]).sum() >= 10


def test_those_whose_coin_says_so_join_the_units(mine):
    canaries = _drawn(mine, 16)
    units = canaries.beside(mine.units, "cpu")
    taken = int(canaries.took_part_M.sum())
    assert 0 < taken < 16
    assert units.count == mine.units.count + taken
    assert units.graphs.num_graphs == mine.units.graphs.num_graphs + taken
    own = units.graphs.x_NA[mine.units.graphs.num_nodes :]
    assert own.shape[0] == 12 * taken
    assert int(units.graphs.edge_index_2E.max()) == units.graphs.num_nodes - 1


def test_without_canaries_the_units_stay(mine):
    assert _drawn(mine, 0).beside(mine.units, "cpu").count == mine.units.count


def test_all_guesses_right_give_the_bound_of_the_binomial_tail():
    """Without delta the bound solves q ** 32 = .05 for q = e^epsilon / (1 + e^epsilon)."""
    chance = 0.05 ** (1 / 32)
    found = lower_bound(64, 32, 32, 0.0)
    assert found.epsilon == pytest.approx(math.log(chance / (1 - chance)), abs=1e-6)


@pytest.mark.parametrize("right", [0, 10, 16, 20])
def test_guesses_like_a_coin_s_give_nothing(right):
    assert lower_bound(64, 32, right, 1e-3).epsilon == 0.0


def test_delta_costs_a_little():
    assert 0 < lower_bound(64, 32, 31, 1e-3).epsilon < lower_bound(64, 32, 31, 0.0).epsilon
    assert lower_bound(64, 32, 32, 0.5).epsilon == 0.0


def test_half_of_the_coins_are_guessed_by_the_scores():
    score_M = np.array([5.0, -3.0, 1.0, 0.0, 4.0, -4.0, 0.5, 0.6])
    coins_M = np.array([True, False, False, True, False, False, True, True])
    assert guess_half(score_M, coins_M) == (4, 3)


def test_randomized_response_is_never_bounded_above_its_epsilon():
    """Each coin is told truly with probability e/(1+e): the mechanism has epsilon 1 exactly."""
    rng, above = np.random.default_rng(0), 0
    for _ in range(60):
        coins_M = rng.random(64) < 0.5
        told_M = np.where(rng.random(64) < math.e / (1 + math.e), coins_M, ~coins_M)
        score_M = told_M + 0.01 * rng.random(64)
        above += lower_bound(64, *guess_half(score_M, coins_M), 0.0).epsilon > 1.0
    assert above <= 0.1 * 60


FEW = Privacy(epsilon=2.0, delta=1e-2, steps=4, sampling_rate=0.5)
WITHOUT_NOISE = replace(FEW, epsilon=math.inf, steps=10, learning_rate=2.0)


class Kept(Logger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.figures: list[Mapping[str, float]] = []

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.figures.append(values)


def tuned(mine: PrivateJobs, folder: Path, privacy: Privacy, key: int | None = 1) -> PrivateResult:
    return tune_privately(mine.run(folder, privacy), generator=SecretGenerator(key))


def weights_of(result: PrivateResult) -> dict[str, torch.Tensor]:
    return load_checkpoint(result.run.best).model.state_dict()


def test_the_checkpoint_is_an_ordinary_one_with_its_promise(mine, tmp_path):
    result = tuned(mine, tmp_path, FEW, key=None)
    checkpoint = load_checkpoint(result.run.best)
    assert checkpoint.meta.privacy == result.guarantee
    assert result.guarantee.epsilon == 2.0
    assert result.guarantee.delta == 1e-2
    assert 0 < result.guarantee.trained_parameters < 5000
    assert checkpoint.spec == mine.base.spec
    assert "secret key" in result.guarantee.noise


def test_nothing_else_in_the_checkpoint_follows_from_the_private_graphs(mine, tmp_path):
    """Everything but the tuned weights is the same whatever the private graphs are."""
    other = replace(mine, data=mine.data.replaced(graphs={
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


def test_only_the_few_parameters_change(mine, tmp_path):
    result = tuned(mine, tmp_path, FEW)
    before, after = (
        mine.base.model.state_dict(),
        load_checkpoint(result.run.best).model.state_dict(),
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith("heads.") for name in changed), changed
    assert all(name.endswith((".bias", ".project.weight")) for name in changed), changed


def test_without_noise_it_learns(mine, tmp_path):
    result = tuned(mine, tmp_path, WITHOUT_NOISE)
    batch = mine.data.batch("train")
    after = nats_of(load_checkpoint(result.run.best).model, batch)
    assert after < 0.95 * nats_of(mine.base.model, batch)
    assert result.guarantee.epsilon is None
    assert "nothing is promised" in str(result.guarantee)


def test_a_step_without_units_is_noise_of_the_promised_size(mine, tmp_path):
    class Nobody(SecretGenerator):
        """Draws nobody into the sample."""

        def coins(self, count: int, rate: float) -> np.ndarray:
            return np.zeros(count, bool)

    one = replace(FEW, steps=1, rank=0, momentum=0.0)
    result = tune_privately(mine.run(tmp_path, one), generator=Nobody(1))
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


def test_the_same_key_gives_the_same_weights_and_a_secret_one_others(mine, tmp_path):
    folders = [
        tuned(mine, tmp_path / str(i), FEW, key).run.best for i, key in enumerate((1, 1, None))
    ]
    first, again, other = ((f / "weights.safetensors").read_bytes() for f in folders)
    assert first == again
    assert first != other


def test_figures_are_marked_as_the_owner_s(mine, tmp_path):
    logger = Kept()
    tune_privately(mine.run(tmp_path, FEW), loggers=[logger], generator=SecretGenerator(1))
    assert len(logger.figures) == FEW.steps
    assert all(name.startswith(OWNER_ONLY) for figures in logger.figures for name in figures)
    assert all(0 <= figures[f"{OWNER_ONLY}clipped"] <= 1 for figures in logger.figures)


def test_owners_count_as_one_each(mine, tmp_path):
    run = mine.run(tmp_path, replace(FEW, unit="owner", owners=Path("owners.csv")))
    units = Units.from_owners(mine.data.batch("train"), ["a", "b", "c"] * 4)
    result = tune_privately(replace(run, units=units), generator=SecretGenerator(1))
    assert result.guarantee.unit == "owner"
    assert result.guarantee.neighbors.startswith("one owner replaced by an empty one")


def test_an_audit_finds_canaries_where_nothing_hides_them(mine, tmp_path):
    """The audit can fail: 48 canaries give at most 2.02; one wrong guess leaves 1.50 of it."""
    plain = replace(WITHOUT_NOISE, delta=1e-5, clip=1e6, learning_rate=3e3, canaries=48)
    bound = tuned(mine, tmp_path / "plain", plain).guarantee.lower_bound
    assert bound is not None
    assert bound > 1.4
    noisy = replace(FEW, canaries=48)
    bound = tuned(mine, tmp_path / "noisy", noisy).guarantee.lower_bound
    assert bound is not None
    assert bound <= 2.0


def test_a_run_that_stands_there_is_not_replaced(mine, tmp_path):
    run = mine.run(tmp_path, FEW)
    tune_privately(run, generator=SecretGenerator(1))
    with pytest.raises(UsageError, match="best"):
        tune_privately(replace(run, overwrite=False), generator=SecretGenerator(1))
