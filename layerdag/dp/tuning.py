"""Tune a public model on private units, with a promise beside the weights that canaries audit.

Canaries are strange graphs that take part by a coin flip each. An attacker who sees the tuned
weights, and knows everything but the coins, guesses some of them. Under (epsilon, delta)
differential privacy the number of right guesses is bounded; if more are right, epsilon was larger:
a lower bound of the privacy loss from one run (Steinke, Nasr and Jagielski, arXiv 2305.08846,
Theorem 5.2).

Shape letters: M canaries, P tuned parameters, U units.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.dp.accountant import accountant_name, noise_multiplier, require_accountant
from layerdag.dp.gradients import Adapters, SecretGenerator, UnitDecisions, clipped
from layerdag.dp.settings import Privacy
from layerdag.dp.units import Units
from layerdag.models.spec import ModelSpec, build_model
from layerdag.runtime.notes import Note
from layerdag.runtime.rng import numpy_generator
from layerdag.training.batches import take_graphs
from layerdag.training.checkpoint import (
    BEST,
    LAST,
    CheckpointMeta,
    Guarantee,
    InitialWeights,
    save_checkpoint,
)
from layerdag.training.loggers import Logger
from layerdag.training.run import TrainResult
from layerdag.training.run_folder import begin_run, hold_run

_NODES = 12
"""Of a canary."""


@dataclass(frozen=True, eq=False)
class Canaries:
    """Strange graphs, their coins, and the gradient of each under the public weights."""

    graphs: DAGBatch | None  # one for each canary; None of none
    took_part_M: np.ndarray  # their coins
    gradient_MP: np.ndarray  # of nats per node

    @classmethod
    def drawn(cls, adapters: Adapters, count: int, generator: SecretGenerator) -> "Canaries":
        """Draw canaries and their coins.

        The adapters are of a public model in evaluation mode; the generator draws the coins.
        """
        if not count:
            return cls(None, np.zeros(0, bool), np.zeros((0, 0)))
        model = adapters.model
        graphs = canary_graphs(model.statistics, model.sizes, count)
        device = next(model.parameters()).device
        units = Units(graphs.to(device), np.arange(count), count)
        gradient_MP, _ = UnitDecisions.from_units(adapters, units).gradients(np.ones(count, bool))
        return cls(graphs, generator.coins(count, 0.5), gradient_MP.numpy())

    def beside(self, units: Units, device: torch.device | str) -> Units:
        """Return units on a device, with a further one for each canary that takes part."""
        graphs, unit_B, count = units.graphs, units.unit_B, units.count
        if self.graphs is not None and self.took_part_M.any():
            own = take_graphs(self.graphs, torch.from_numpy(np.flatnonzero(self.took_part_M)))
            graphs = joined(graphs, own)
            unit_B = np.concatenate([unit_B, count + np.arange(own.num_graphs)])
            count += own.num_graphs
        return Units(graphs.to(device), unit_B, count)


def canary_graphs(statistics: GraphStatistics, sizes: GraphSizes, count: int) -> DAGBatch:
    """Return chains of one node again and again, without conditions; the same at each call.

    Each chain has a node of its own, whose codes are drawn at random among those that go together:
    each canary pulls at another combination of tuned parameters, so that gradients of different
    canaries are far from parallel. A code of share f is drawn with a weight of sqrt(f (1 - f)), the
    scale of its parameters: codes that hardly move would tell nothing.
    """
    rng = numpy_generator(0, "canaries")
    chain_E = torch.arange(_NODES - 1)
    edges_2E = torch.stack([chain_E, chain_E + 1])
    dags: list[DAG] = []
    for _ in range(count):
        row_A = _random_node(statistics, rng)
        dags.append(DAG.build(torch.tensor([row_A] * _NODES), edges_2E).in_layer_order())
    numeric_BC = torch.full((count, sizes.numeric_conditions), torch.nan)
    category_BM = torch.full((count, len(sizes.category_conditions)), -1)
    return DAGBatch.from_dags(dags, numeric_BC, category_BM)


def _random_node(statistics: GraphStatistics, rng: np.random.Generator) -> list[int]:
    """Draw a code for each attribute, among those that the earlier ones allow where they do."""
    row: list[int] = []
    for attribute, counts in enumerate(statistics.attributes):
        share_K = np.array(counts) / max(sum(counts), 1)
        weight_K = np.sqrt(share_K * (1 - share_K))
        fitting_K = weight_K * _allowed(statistics, row, attribute)
        if fitting_K.any():
            weight_K = fitting_K
        elif not weight_K.any():
            weight_K = np.array(counts) + 1e-9
        row.append(int(rng.choice(len(counts), p=weight_K / weight_K.sum())))
    return row


def _allowed(statistics: GraphStatistics, row: Sequence[int], attribute: int) -> np.ndarray:
    allowed_K = np.ones(len(statistics.attributes[attribute]), bool)
    for earlier, later in enumerate(statistics.allowed_codes[: len(row)]):
        lists = later[attribute - earlier - 1]
        if lists and lists[row[earlier]]:
            allowed_K &= np.isin(np.arange(allowed_K.size), lists[row[earlier]])
    return allowed_K


def joined(first: DAGBatch, second: DAGBatch) -> DAGBatch:
    """Return the graphs of two batches as one."""
    nodes, edges = first.num_nodes, first.edge_index_2E.shape[1]
    pairs: Sequence[tuple[Tensor, Tensor]] = (
        (first.x_NA, second.x_NA),
        (first.u_NA, second.u_NA),
        (first.layer_N, second.layer_N),
    )
    x_NA, u_NA, layer_N = (torch.cat(pair) for pair in pairs)
    return DAGBatch(
        x_NA=x_NA,
        u_NA=u_NA,
        layer_N=layer_N,
        edge_index_2E=torch.cat([first.edge_index_2E, second.edge_index_2E + nodes], dim=1),
        edge_type_E=torch.cat([first.edge_type_E, second.edge_type_E]),
        node_ptr=torch.cat([first.node_ptr, second.node_ptr[1:] + nodes]),
        edge_ptr=torch.cat([first.edge_ptr, second.edge_ptr[1:] + edges]),
        numeric_BC=torch.cat([first.numeric_BC, second.numeric_BC]),
        category_BM=torch.cat([first.category_BM, second.category_BM]),
    )


_LARGEST = 50.0
_HALVINGS = 40


@dataclass(frozen=True)
class LowerBound:
    """What an attacker found."""

    epsilon: float  # lower bound, 0 if nothing was found
    canaries: int  # number of coins
    guesses: int  # coins that were guessed
    right: int  # guesses that were right
    confidence: float  # probability with which the bound holds


def guess_half(score_M: np.ndarray, took_part_M: np.ndarray) -> tuple[int, int]:
    """Guess the coins of half of the canaries: the highest quarter in, the lowest quarter out.

    How many are guessed is fixed before the scores are seen.
    """
    quarter = max(len(score_M) // 4, 1)
    order_M = np.argsort(score_M, kind="stable")
    right = took_part_M[order_M[-quarter:]].sum() + (~took_part_M[order_M[:quarter]]).sum()
    return 2 * quarter, int(right)


def lower_bound(
    canaries: int, guesses: int, right: int, delta: float, confidence: float = 0.95
) -> LowerBound:
    """Return the largest epsilon that the guesses refute.

    The number of guesses must not follow from the coins; ``delta`` is that of the promise.
    """
    low, high = 0.0, _LARGEST
    if p_value(canaries, guesses, right, 0.0, delta) >= 1 - confidence:
        return LowerBound(0.0, canaries, guesses, right, confidence)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        refuted = p_value(canaries, guesses, right, middle, delta) < 1 - confidence
        low, high = (middle, high) if refuted else (low, middle)
    return LowerBound(low, canaries, guesses, right, confidence)


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the probability of so many right guesses, at most, under (epsilon, delta)."""
    from scipy.stats import binom

    chance = 1 / (1 + np.exp(-epsilon))
    at_least = float(binom.sf(right - 1, guesses, chance))
    below_I = binom.pmf(right - np.arange(1, right + 1), guesses, chance).cumsum()
    slack = float(np.max(below_I / np.arange(1, right + 1), initial=0.0))
    return min(at_least + 2 * canaries * delta * slack, 1.0)


_FLOOR = 1e-4
"""Added to the variance of every parameter, over the mean variance: some vary in no graph."""


class CanaryAttack:
    """A regression of what tuning changed on the gradients of the canaries.

    Differential privacy bounds attackers who know all other units. This one removes what those do
    to the weights, as far as it lies in the directions of their gradients before and after tuning,
    and weighs each direction by how far coins of other units and noise move it. It begins before
    tuning; canaries come last in ``decisions``.
    """

    def __init__(
        self, canaries: Canaries, decisions: UnitDecisions, privacy: Privacy, multiplier: float
    ) -> None:
        self.canaries, self.decisions, self.privacy = canaries, decisions, privacy
        self.multiplier, self.before_P = multiplier, decisions.adapters.flat()
        self.known_UP = self._others()

    def _others(self) -> Tensor:
        """Return the clipped gradients of all other units."""
        units = len(self.decisions.nodes_U)
        count = units - int(self.canaries.took_part_M.sum())
        gradient_UP, _ = self.decisions.gradients(np.arange(units) < count)
        return clipped(gradient_UP[:count], self.privacy.clip)

    def lower_bound(self, delta: float) -> LowerBound:
        """Guess coins by the parameters that the adapters have now; return what that refutes."""
        clip, rate = self.privacy.clip, self.privacy.sampling_rate
        parts = (self.known_UP, self._others())
        others_2P = torch.stack([part.sum(0) for part in parts]).numpy()
        moved_PP = torch.stack([part.T @ part for part in parts]).mean(0)
        noise_PP = rate * (1 - rate) * moved_PP + (self.multiplier * clip) ** 2 * torch.eye(
            len(moved_PP), dtype=torch.float64
        )
        change_P = (self.decisions.adapters.flat() - self.before_P).numpy()
        gradient_MP = clipped(torch.from_numpy(self.canaries.gradient_MP), clip).numpy()
        # Half of what taking part adds in all steps, in units of the noise of one.
        pull_MP = 0.5 * rate * self.privacy.steps**0.5 * gradient_MP
        score_M = scores(pull_MP, change_P, others_2P, noise_PP.numpy())
        guesses, right = guess_half(score_M, self.canaries.took_part_M)
        return lower_bound(len(score_M), guesses, right, delta)


def scores(
    pull_MP: np.ndarray, change_P: np.ndarray, others: np.ndarray, noise_PP: np.ndarray
) -> np.ndarray:
    """Return how much each canary seems to have taken part, float64 (M,).

    The scores are the best linear guess of coins of variance 1 from their pull plus noise: ridge
    regression in coordinates where the noise is white. ``pull_MP`` is what taking part adds,
    against a mean coin; ``others`` are directions that count for nothing, a row each; ``noise_PP``
    is the covariance of the noise. The unit of ``change_P`` does not matter.
    """
    count = len(noise_PP)
    floor = _FLOOR * np.trace(noise_PP) / count
    factor_PP = np.linalg.cholesky(noise_PP + floor * np.eye(count))
    known = np.vstack([pull_MP.mean(axis=0), others])
    columns = np.linalg.solve(factor_PP, np.vstack([pull_MP, -change_P, known]).T)
    white_PM, white_P, white_known = np.split(columns, [len(pull_MP), len(pull_MP) + 1], axis=1)
    basis, _ = np.linalg.qr(white_known)
    white_PM = white_PM - basis @ (basis.T @ white_PM)
    gram_MM = white_PM.T @ white_PM
    return np.linalg.solve(gram_MM + np.eye(len(gram_MM)), white_PM.T @ white_P[:, 0])


OWNER_ONLY = "owner_only/"
"""Beginning of the names of figures that follow from private graphs without noise."""

_NEIGHBORS = "one {unit} replaced by an empty one; the number of {unit}s is public"


@dataclass(frozen=True, eq=False)
class PrivateRun:
    """What to tune, on what, and where to put it."""

    spec: ModelSpec  # of the public base, unchanged
    start: InitialWeights  # Weights of the public base
    schema: Mapping[str, Any]  # of the public base, as JSON-serializable data
    units: Units  # private graphs, encoded by that schema
    directory: Path  # of the run; the checkpoint goes to its ``best``
    privacy: Privacy  # what is promised; its ``epsilon`` is a number
    seed: int = 0  # of the first matrices of the adapters; public
    # configuration on record; must not follow from the private graphs
    run_config: Mapping[str, Any] = field(default_factory=dict)
    overwrite: bool = False  # whether an older run in ``directory`` may be replaced
    # what ``run.json`` in ``directory`` shall hold, for its owner alone
    record: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # graphs that the schema cannot express, with the reason
    notes: tuple[Note, ...] = ()  # what the readers of the private graphs did not understand

    def __str__(self) -> str:
        """Return what is about to be tuned: for the owner of the graphs alone."""
        unit, count = self.privacy.unit, self.units.count
        return (
            f"private: {self.units.graphs.num_graphs:,} graphs of {count:,} {unit}s, in the words, "
            f"bins and conditions of {self.start.origin.name}; validation and test graphs are not "
            "used"
        )


@dataclass(frozen=True)
class PrivateResult:
    """How a private run ended."""

    run: TrainResult  # as of any training run, without validation figures
    guarantee: Guarantee  # what is promised

    def card(self) -> str:
        """Return the promise as a page in Markdown, which names nothing of the private graphs."""
        guarantee = self.guarantee
        rows = [
            ("unit", guarantee.unit),
            ("epsilon", "none" if guarantee.epsilon is None else f"{guarantee.epsilon:g}"),
            ("delta", f"{guarantee.delta:g}"),
            ("neighbors", guarantee.neighbors),
            ("accountant", guarantee.accountant),
            ("noise over clipping norm", f"{guarantee.noise_multiplier:.4g}"),
            ("sampling", f"Poisson, rate {guarantee.sampling_rate:g}"),
            ("steps", str(guarantee.steps)),
            ("clipping norm", f"{guarantee.clip:g}"),
            ("tuned parameters", f"{guarantee.trained_parameters:,}"),
            ("noise", guarantee.noise),
            ("measured lower bound of epsilon",
             "not measured" if guarantee.lower_bound is None else f"{guarantee.lower_bound:.2f}"),
        ]  # fmt: skip
        table = "\n".join(f"| {name} | {value} |" for name, value in rows)
        return (
            f"# Differential privacy of these weights\n\n{guarantee}.\n\n"
            f"| | |\n|---|---|\n{table}\n\n"
            "The promise is about the runs that were tuned on, not about those of the checkpoint "
            "that tuning started from, and about one run of tuning: choosing among several by "
            "private graphs is not in it. Arithmetic is in floating point, which the proof "
            "ignores.\n"
        )


def tune_privately(
    run: PrivateRun,
    *,
    device: torch.device | str = "cpu",
    loggers: Sequence[Logger] = (),
    generator: SecretGenerator | None = None,
) -> PrivateResult:
    """Tune a public model on private units, and write the checkpoint with its guarantee.

    The weights are the mean over the second half of the steps: nothing is selected, and no private
    graph is used but through the noisy sums.

    The loggers take figures that only the owner of the data may see (``OWNER_ONLY``), beside the
    log ``train.jsonl`` in the run's folder. Without a generator of noise, samples and coins, one
    with a secret key is made.

    Raises:
        ConfigError: If the accountant is not installed, or the model is not ``fast``.
        UsageError: If another run stands there and may not be replaced, or another process is
            training there.
    """
    began, privacy = time.monotonic(), run.privacy
    generator = generator or SecretGenerator()
    assert privacy.epsilon is not None
    if math.isfinite(privacy.epsilon):
        require_accountant()
    with (
        hold_run(run.directory, overwrite=run.overwrite),
        contextlib.closing(begin_run(run.directory, run.record)) as log,
    ):
        delta = privacy.delta_for(run.units.count)
        rate = (privacy.steps, privacy.sampling_rate)
        multiplier = noise_multiplier(privacy.epsilon, delta, *rate)
        model = build_model(run.spec).to(device).eval()
        model.load_state_dict(dict(run.start.weights))
        adapters = Adapters(model, privacy.rank, run.seed)
        canaries = Canaries.drawn(adapters, privacy.canaries, generator)
        decisions = UnitDecisions.from_units(adapters, canaries.beside(run.units, device))
        attack = None
        if privacy.canaries:
            attack = CanaryAttack(canaries, decisions, privacy, multiplier)
        sums = _noisy_sums(decisions, privacy, multiplier, generator, (log, *loggers))
        adapters.set(_mean_of_last_half(adapters, sums, run))
        bound = None if attack is None else attack.lower_bound(delta).epsilon
        guarantee = Guarantee(
            epsilon=privacy.epsilon if multiplier else None,
            delta=delta,
            unit=privacy.unit,
            neighbors=_NEIGHBORS.format(unit=privacy.unit),
            accountant=accountant_name() if multiplier else "none",
            noise_multiplier=multiplier,
            sampling_rate=privacy.sampling_rate,
            steps=privacy.steps,
            clip=privacy.clip,
            trained_parameters=adapters.count,
            noise=generator.description,
            lower_bound=bound,
        )
        # Hashes of the split and of the data would confirm a guess of them, so they are left out:
        # nothing in the checkpoint follows from private graphs but the tuned weights.
        meta = CheckpointMeta(
            step=privacy.steps, seed=run.seed, origin=run.start.origin, privacy=guarantee
        )
        weights = adapters.merge()
        contents = (run.spec, weights, run.schema, run.run_config, meta)
        best = run.directory / BEST
        save_checkpoint(best, *contents, overwrite=True)
    seconds = time.monotonic() - began
    result = TrainResult("budget", privacy.steps, seconds, {}, best, run.directory / LAST)
    return PrivateResult(result, guarantee)


def _mean_of_last_half(adapters: Adapters, sums: Iterator[Tensor], run: PrivateRun) -> Tensor:
    """Make a step with each noisy sum; return the mean parameters of the second half of them."""
    privacy = run.privacy
    value_P = adapters.flat()
    speed_P, total_P = torch.zeros_like(value_P), torch.zeros_like(value_P)
    first = privacy.steps // 2
    usual = privacy.clip * privacy.sampling_rate * run.units.count
    for step, sum_P in enumerate(sums):
        speed_P = privacy.momentum * speed_P + sum_P / usual
        value_P = value_P - privacy.learning_rate * speed_P
        adapters.set(value_P)
        if step >= first:
            total_P += value_P
    return total_P / (privacy.steps - first)


def _noisy_sums(
    decisions: UnitDecisions,
    privacy: Privacy,
    multiplier: float,
    generator: SecretGenerator,
    loggers: Sequence[Logger],
) -> Iterator[Tensor]:
    """Yield the noisy sum of clipped gradients of each step, by the parameters as they are then."""
    for step in range(1, privacy.steps + 1):
        chosen_U = generator.coins(len(decisions.nodes_U), privacy.sampling_rate)
        gradient_UP, nats = decisions.gradients(chosen_U)
        is_chosen_U = torch.from_numpy(chosen_U)
        norm_U = gradient_UP.norm(dim=1)[is_chosen_U]
        nodes = float(decisions.nodes_U[is_chosen_U].sum())
        figures = {
            f"{OWNER_ONLY}nats_per_node": nats / max(nodes, 1.0),
            f"{OWNER_ONLY}units": float(chosen_U.sum()),
            f"{OWNER_ONLY}clipped": float((norm_U > privacy.clip).double().mean()),
        }
        for logger in loggers:
            logger.log(step, figures)
        noise_P = multiplier * privacy.clip * generator.normal(gradient_UP.shape[1])
        yield clipped(gradient_UP, privacy.clip).sum(0) + noise_P
