"""Training shadow models of a checkpoint, each on a random half of training and held-out graphs."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from layerdag._runtime import derive_seed, numpy_generator
from layerdag.api.auditing.shadows._kept import ShadowModel, held_folder, kept_models
from layerdag.api.auditing.shadows._recipe import Recipe
from layerdag.api.auditing.shadows._settings import ShadowSettings
from layerdag.datasets import GraphDataset, Split
from layerdag.errors import UsageError
from layerdag.evaluation.privacy import (
    MOST_SCORED,
    balanced_members,
    graph_losses,
    program_of,
)
from layerdag.graph import DAG, graph_hash
from layerdag.models import DAGModel
from layerdag.sampling import checkpoint_fingerprint
from layerdag.training import LoadedCheckpoint, TrainingRun, held_run, load_checkpoint, train

LEAST_RUNS = 8
VALIDATED = 16
"""Graphs that training must be given to validate on; nothing follows from it.

They are of the model's own half: others may hold what it gives no chance, and then it would count
as having learned nothing.
"""
Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Pool:
    """Training and held-out graphs of an audit.

    Attributes:
        data: In codes of the audited checkpoint.
        scored: Numbers of the graphs whose losses are taken, in ascending order.
    """

    data: GraphDataset
    scored: np.ndarray

    @classmethod
    def of(cls, data: GraphDataset, seed: int) -> "Pool":
        """Return all graphs, of which ``MOST_SCORED`` of each kind are scored.

        Raises:
            UsageError: If there are too few runs to draw halves of.
        """
        rng = numpy_generator(seed, "scored graphs of shadows")
        counts = len(data.members), len(data.held_out)
        scored = [np.sort(rng.permutation(count)[:MOST_SCORED]) for count in counts]
        pool = cls(data, np.concatenate([scored[0], counts[0] + scored[1]]))
        runs = int(pool.run_G.max(initial=-1)) + 1
        if runs < LEAST_RUNS or not all(counts):
            raise UsageError(
                f"Shadow models need at least {LEAST_RUNS} distinct training and held-out graphs, "
                f"of both kinds, found {runs}; leave --shadows out, or give more."
            )
        return pool

    @cached_property
    def graphs(self) -> tuple[DAG, ...]:
        """The training graphs, then the held-out ones."""
        return (*self.data.members, *self.data.held_out)

    @cached_property
    def run_G(self) -> np.ndarray:
        """The run of each graph; programs with the same operators, edges and sizes are one."""
        measured = self.data.schema.measured_columns
        keys = [graph_hash(program_of(dag, measured)) for dag in self.graphs]
        _, run_G = np.unique(np.array(keys, dtype=object).astype(str), return_inverse=True)
        return run_G

    @property
    def scored_members(self) -> int:
        """Number of scored training graphs."""
        return int((self.scored < len(self.data.members)).sum())

    def losses_under(self, model: DAGModel) -> np.ndarray:
        """Return nats per node of the scored graphs; NaN where the model gives one no chance."""
        chosen = [self.graphs[i] for i in self.scored.tolist()]
        loss_K = graph_losses(model, self.data.schema, chosen)
        return np.where(np.isfinite(loss_K), loss_K, np.nan)

    def half(self, member_G: np.ndarray) -> GraphDataset:
        """Return the data set of a shadow model: its half, and what every model was trained on."""
        further = [
            dag
            for dag, name in zip(self.data.graphs["train"], self.data.names["train"], strict=True)
            if name in self.data.further
        ]
        own = [self.graphs[i] for i in np.flatnonzero(member_G).tolist()]
        graphs: dict[Split, tuple[DAG, ...]] = {
            "train": (*further, *own),
            "val": tuple(own[:VALIDATED]),
            "test": (),
        }
        names = {part: tuple(str(i) for i in range(len(dags))) for part, dags in graphs.items()}
        return replace(
            self.data, graphs=graphs, names=names, contents={}, further=frozenset(), renamed={}
        )


def shadow_models(
    checkpoint: LoadedCheckpoint,
    pool: Pool,
    recipe: Recipe,
    settings: ShadowSettings,
    tell: Tell,
) -> tuple[list[ShadowModel], np.ndarray, int]:
    """Return shadow models, which graphs each was trained on, (S, G), and the planned steps.

    Args:
        checkpoint: The audited one.
        pool: Training and held-out graphs.
        recipe: How it was trained.
        settings: How many models, and for how long.
        tell: Is told of each model in a line.

    Raises:
        UsageError: If the folder holds something else.
        TrainingError: If training diverged.
    """
    runs = int(pool.run_G.max()) + 1
    rng = numpy_generator(settings.seed, "members of shadows")
    member_SG = balanced_members(settings.count, runs, rng)[:, pool.run_G]
    planned = recipe.settings_for(pool.half(member_SG[0]), 0, None, None)[1]

    def trained(shadow: int, folder: Path) -> ShadowModel:
        return _trained(pool, recipe, settings, member_SG[shadow], shadow, folder)

    def told(shadow: int, model: ShadowModel) -> None:
        tell(_line(shadow, settings.count, model, member_SG[shadow][pool.scored]))

    with tempfile.TemporaryDirectory(prefix="layerdag-") as nowhere:
        place = settings.folder or Path(nowhere) / "shadows"
        with held_folder(place, _target(checkpoint, pool, settings)) as folder:
            size = len(pool.scored)
            models = kept_models(folder, settings.count, size, trained, told)
    return models, member_SG, planned


def _target(
    checkpoint: LoadedCheckpoint, pool: Pool, settings: ShadowSettings
) -> dict[str, object]:
    """Return what losses depend on."""
    held = "".join(graph_hash(dag) for dag in pool.data.held_out)
    return {
        "weights": checkpoint_fingerprint(checkpoint.path),
        "graphs": f"{pool.data.fingerprint}-{derive_seed(0, held):016x}",
        "shadows": settings.count,
        "steps": settings.steps,
        "seconds": settings.seconds,
        "seed": settings.seed,
    }


def _trained(
    pool: Pool,
    recipe: Recipe,
    settings: ShadowSettings,
    member_G: np.ndarray,
    shadow: int,
    folder: Path,
) -> ShadowModel:
    """Return the shadow model of a half, trained now."""
    data = pool.half(member_G)
    seed = derive_seed(settings.seed, "shadow model", str(shadow)) % 2**31
    spec, start = recipe.start_for(data, seed)
    plan, _ = recipe.settings_for(data, seed, settings.steps, settings.seconds)
    run = TrainingRun(
        spec=spec,
        start=start,
        train=data.batch("train"),
        validation=data.batch("val"),
        directory=folder,
        schema=data.schema.to_dict(),
    )
    with held_run(folder):
        result = train(run, plan)
    if result.reason not in ("budget", "patience"):
        raise KeyboardInterrupt(
            f"shadow model {shadow + 1} was stopped; the same command goes on from there."
        )
    loss_K = pool.losses_under(load_checkpoint(result.best).model)
    return ShadowModel(loss_K, result.step, result.seconds)


def _line(shadow: int, count: int, model: ShadowModel, member_K: np.ndarray) -> str:
    """Return what is said of a model when it is there."""
    own, other = (_mean(model.loss_K[which]) for which in (member_K, ~member_K))
    return (
        f"shadow model {shadow + 1} of {count}: {model.steps:,} steps, {model.seconds:.0f} s, "
        f"{own} nats per node on its own graphs, {other} on the others"
    )


def _mean(loss_K: np.ndarray) -> str:
    known_K = loss_K[~np.isnan(loss_K)]
    return f"{known_K.mean():.2f}" if known_K.size else "no"
