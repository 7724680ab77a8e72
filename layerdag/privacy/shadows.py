"""Shadow models: their recipe, training, losses, and the attacks they serve."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from layerdag.dag.dag import DAG, graph_hash
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import CheckpointError, ConfigError, UsageError
from layerdag.graph.attributed_graph import Split
from layerdag.models.base import DAGModel
from layerdag.models.spec import ModelSpec
from layerdag.privacy.likelihood_ratio import (
    ShadowLosses,
    balanced_members,
    likelihood_ratio_attacks,
    pooled_attack,
    scores_as_members,
    shadows_as_targets,
)
from layerdag.privacy.membership import MAX_SCORED, AttackResult, graph_losses
from layerdag.runtime.files import (
    LOCK,
    FolderKind,
    atomic_folder,
    atomic_path,
    file_lock,
    require_replaceable,
    unexpected_files,
)
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.runtime.settings import build_settings
from layerdag.runtime.terminal import track
from layerdag.training.batches import BucketedSource
from layerdag.training.checkpoint import (
    InitialWeights,
    LoadedCheckpoint,
    checkpoint_fingerprint,
    load_checkpoint,
)
from layerdag.training.loop import train
from layerdag.training.model_spec import spec_for
from layerdag.training.run import assemble
from layerdag.training.settings import TrainSettings
from layerdag.training.warm_start import PRETRAINED, checkpoint_folder, warm_start

TARGET = "target.json"
_READ_ME = "README.txt"
_WARNING = (
    "This folder stays with the owner of the graphs. It holds how likely each real graph is under\n"
    "shadow models of an audit (layerdag audit --shadows). It may be deleted; then they are\n"
    "trained again.\n"
)


@dataclass(frozen=True, eq=False)
class ShadowModel:
    """What is kept of a shadow model.

    Attributes:
        loss_K: Nats per node of the scored graphs; NaN where it cannot express one.
        steps: Optimizer steps that it was trained for, 0 if unknown.
    """

    loss_K: np.ndarray
    steps: int = 0
    seconds: float = 0.0


def kept_models(
    folder: Path,
    count: int,
    size: int,
    trained: Callable[[int, Path], ShadowModel],
    report: Callable[[int, ShadowModel], None] = lambda *_: None,
) -> list[ShadowModel]:
    """Return shadow models of ``size`` scored graphs from their files; train those without one.

    ``trained`` takes the number of a model and a folder for it, which is removed afterwards, so
    that no weights of shadow models are kept.
    """
    models = []
    for shadow in track(range(count), "training shadow models", count):
        file = folder / f"{shadow:05d}.npz"
        model = _read(file, size)
        if model is None:
            path = file.with_suffix(".run")
            shutil.rmtree(path, ignore_errors=True)
            try:
                model = trained(shadow, path)
            finally:
                shutil.rmtree(path, ignore_errors=True)
            facts = np.array([model.steps, model.seconds])
            with atomic_path(file) as draft, draft.open("wb") as stream:
                np.savez(stream, allow_pickle=False, loss=model.loss_K, facts=facts)
        report(shadow, model)
        models.append(model)
    return models


def _read(file: Path, size: int) -> ShadowModel | None:
    """Return a model from its file; None, and no file, if it is damaged."""
    if not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as held:
            steps, seconds = held["facts"]
            model = ShadowModel(held["loss"], int(steps), float(seconds))
        if model.loss_K.shape == (size,):
            return model
    except (OSError, ValueError, KeyError, EOFError, IndexError):
        pass
    file.unlink()
    return None


@contextlib.contextmanager
def shadow_lock(path: Path, target: Mapping[str, object]) -> Iterator[Path]:
    """Hold a folder of losses for this process; those of another audit in it are discarded.

    Raises:
        UsageError: If it holds anything else, or is in use.
    """
    wanted = json.dumps(dict(target), indent=1) + "\n"
    with file_lock(path.with_name(f".{path.name}.lock"), guarded=path):
        require_replaceable(path, _SHADOWS, overwrite=True)
        noted = path / TARGET
        found = noted.read_text(encoding="utf-8", errors="replace") if noted.is_file() else ""
        if found != wanted:
            with atomic_folder(path, _SHADOWS, overwrite=True) as draft:
                (draft / TARGET).write_text(wanted)
                (draft / _READ_ME).write_text(_WARNING)
        yield path


def _doubt(folder: Path) -> str:
    if not (folder / TARGET).is_file():
        return f"has no {TARGET} of an audit"
    return unexpected_files(folder, _is_ours)


def _is_ours(name: str) -> bool:
    stem, _, ending = name.partition(".")
    of_model = stem.isdecimal() and ending in ("npz", "run")
    return of_model or name in (TARGET, _READ_ME, LOCK) or name.startswith(".")


_SHADOWS = FolderKind("the shadow models of an audit", _doubt)


@dataclass(frozen=True, eq=False)
class Recipe:
    """How shadow models of a checkpoint are trained.

    Attributes:
        is_recorded: Whether the checkpoint says how it was trained; else these are the usual ones.
        passes: Over its training graphs that it made.
        init: Checkpoint that it started from; None for random weights.
    """

    spec: ModelSpec
    settings: TrainSettings
    is_recorded: bool
    passes: float
    init: str | Path | None

    def start_for(self, data: GraphDataset) -> tuple[ModelSpec, InitialWeights | None]:
        """Return model and initial weights for a data set."""
        if self.init is None:
            return spec_for(data, self.spec.name, self.spec.arguments), None
        warm = warm_start(self.init, data, self.spec.name, self.spec.arguments)
        return warm.spec, warm.start

    def settings_for(
        self, data: GraphDataset, seed: int, steps: int | None, seconds: float | None
    ) -> tuple[TrainSettings, int]:
        """Return how to train on a data set, and the steps of as many passes as the target made.

        There is one validation, at the end: nothing is selected, for graphs that a model is
        selected by would be neither members nor others.
        """
        planned = max(round(self.passes * micro_batches(data, self.settings)), 1)
        most = planned if steps is None else min(steps, planned)
        return replace(
            self.settings,
            seed=seed,
            max_steps=most,
            max_seconds=seconds,
            evaluate_every=most + 1,
            patience=0,
            log_every=most + 1,
        ), planned


def micro_batches(data: GraphDataset, settings: TrainSettings) -> float:
    """Return how many optimizer steps one pass over the training graphs takes."""
    train = data.batch("train")
    nodes = settings.nodes_per_batch("cpu", train.num_nodes)
    source = BucketedSource(train, settings.batch_graphs, nodes, 0)
    return len(source.epoch_batches(0)) / settings.accumulate


def recipe_of(checkpoint: LoadedCheckpoint, data: GraphDataset, init: str | Path | None) -> Recipe:
    """Return the recipe of a checkpoint.

    Raises:
        UsageError: If it started from a checkpoint that is not at hand, or from none.
        CheckpointError: If its settings cannot be used.
    """
    recorded = checkpoint.run_config.get("training")
    try:
        settings = build_settings(TrainSettings, recorded or {}, "training")
    except ConfigError as error:
        raise CheckpointError(
            f"{checkpoint.path}: shadow models cannot be trained as it says ({error}); "
            "leave --shadows out, or name a checkpoint of this version of layerdag."
        ) from error
    return Recipe(
        spec=checkpoint.spec,
        settings=settings,
        is_recorded=bool(recorded),
        passes=checkpoint.meta.step / micro_batches(data, settings),
        init=_start_of(checkpoint, init),
    )


def _start_of(checkpoint: LoadedCheckpoint, init: str | Path | None) -> str | Path | None:
    """Return the checkpoint that a checkpoint started from; None for random weights."""
    origin = checkpoint.meta.origin
    if origin is None:
        if init is not None:
            raise UsageError(
                f"{checkpoint.path}: started from random weights, so its shadow models do; leave "
                f"--init out, found {init}."
            )
        return None
    if init is None and origin.name != PRETRAINED:
        raise UsageError(
            f"{checkpoint.path}: started from the checkpoint '{origin.name}', and shadow models "
            "must do the same; name its folder with --init."
        )
    start = PRETRAINED if init is None else init
    if origin.fingerprint not in ("", checkpoint_fingerprint(checkpoint_folder(start))):
        raise UsageError(
            f"{start}: is not the checkpoint that {checkpoint.path} started from ('{origin.name}', "
            "by the hash of its weights); name the right one with --init."
        )
    return start


MIN_SHADOWS = 16
"""Shadow models that the likelihood ratio needs at least."""
BUDGET = 600.0
"""Seconds for all shadow models, unless steps or seconds are named."""


@dataclass(frozen=True)
class ShadowSettings:
    """Shadow models of an audit.

    Attributes:
        count: Number of models, at least 16.
        steps: Most optimizer steps of each. None is as many passes over its graphs as the audited
            checkpoint made over its own.
        budget: Wall-clock seconds for training all of them, an equal share for each; None is ten
            minutes, or no limit where ``steps`` says how long.
        init: The checkpoint that the audited one started from, where it is not the shipped one.
        folder: Where their losses are kept, so that a stopped audit goes on; None keeps nothing.
        seed: Of halves, weights and order.

    Raises:
        UsageError: If a value is out of bounds, or both limits are named.
    """

    count: int = MIN_SHADOWS
    steps: int | None = None
    budget: float | None = None
    init: str | Path | None = None
    folder: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < MIN_SHADOWS:
            raise UsageError(
                f"An audit needs at least {MIN_SHADOWS} shadow models, found {self.count}: fewer "
                "cannot tell how likely a graph is without having been trained on."
            )
        if self.steps is not None and self.budget is not None:
            raise UsageError(
                "Shadow models are limited by steps or by seconds, and both were named; leave one "
                "of them out."
            )
        if self.steps is not None and self.steps < 1:
            raise UsageError(f"Shadow models need at least 1 step each, found {self.steps}.")
        if self.budget is not None and not 0 < self.budget < float("inf"):
            raise UsageError(f"Shadow models need a budget above 0 seconds, found {self.budget:g}.")
        if self.seed < 0:
            raise UsageError(f"The seed of shadow models must not be negative, found {self.seed}.")

    @property
    def seconds(self) -> float | None:
        """Seconds that training one model may take; None for no limit."""
        if self.budget is None and self.steps is not None:
            return None
        return (BUDGET if self.budget is None else self.budget) / self.count


MIN_RUNS = 8
VALIDATED = 16
"""Graphs that training must be given to validate on; nothing follows from it.

They are of the model's own half: others may hold what it gives no chance, and then it would count
as having learned nothing.
"""
Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class ShadowPool:
    """Training and held-out graphs of an audit.

    Attributes:
        data: In codes of the audited checkpoint.
        scored: Numbers of the graphs whose losses are taken, in ascending order.
    """

    data: GraphDataset
    scored: np.ndarray

    @classmethod
    def from_dataset(cls, data: GraphDataset, seed: int) -> "ShadowPool":
        """Return all graphs, of which ``MAX_SCORED`` of each kind are scored.

        Raises:
            UsageError: If there are too few runs to draw halves of.
        """
        rng = numpy_generator(seed, "scored graphs of shadows")
        counts = len(data.members), len(data.held_out)
        scored = [np.sort(rng.permutation(count)[:MAX_SCORED]) for count in counts]
        pool = cls(data, np.concatenate([scored[0], counts[0] + scored[1]]))
        if pool.runs < MIN_RUNS or not all(counts):
            raise UsageError(
                f"Shadow models need at least {MIN_RUNS} distinct training and held-out graphs, "
                f"of both kinds, found {pool.runs}; leave --shadows out, or give more."
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
        keys = [graph_hash(dag.without_columns(measured)) for dag in self.graphs]
        _, run_G = np.unique(np.array(keys, dtype=object).astype(str), return_inverse=True)
        return run_G

    @property
    def runs(self) -> int:
        """Number of distinct runs."""
        return int(self.run_G.max(initial=-1)) + 1

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
            if name in self.data.extra_train
        ]
        own = [self.graphs[i] for i in np.flatnonzero(member_G).tolist()]
        graphs: dict[Split, tuple[DAG, ...]] = {
            "train": (*further, *own),
            "val": tuple(own[:VALIDATED]),
            "test": (),
        }
        names = {part: tuple(str(i) for i in range(len(dags))) for part, dags in graphs.items()}
        return self.data.replaced(
            graphs=graphs, names=names, contents={}, extra_train=frozenset(), renamed={}
        )


def shadow_models(
    checkpoint: LoadedCheckpoint,
    pool: ShadowPool,
    recipe: Recipe,
    settings: ShadowSettings,
    tell: Tell,
) -> tuple[list[ShadowModel], np.ndarray, int]:
    """Return shadow models, which graphs each was trained on, (S, G), and the planned steps.

    Raises:
        UsageError: If the folder holds something else.
        TrainingError: If training diverged.
    """
    rng = numpy_generator(settings.seed, "members of shadows")
    member_SG = balanced_members(settings.count, pool.runs, rng)[:, pool.run_G]
    planned = recipe.settings_for(pool.half(member_SG[0]), 0, None, None)[1]

    def trained(shadow: int, folder: Path) -> ShadowModel:
        data = pool.half(member_SG[shadow])
        seed = derive_seed(settings.seed, "shadow model", str(shadow)) % 2**31
        spec, start = recipe.start_for(data)
        plan, _ = recipe.settings_for(data, seed, settings.steps, settings.seconds)
        result = train(assemble(data, folder, spec, start=start), plan)
        if not result.is_finished:
            raise KeyboardInterrupt(
                f"shadow model {shadow + 1} was stopped; the same command goes on from there."
            )
        loss_K = pool.losses_under(load_checkpoint(result.best).model)
        return ShadowModel(loss_K, result.step, result.seconds)

    def report(shadow: int, model: ShadowModel) -> None:
        means = []
        member_K = member_SG[shadow][pool.scored]
        for which in (member_K, ~member_K):
            known_K = model.loss_K[which & ~np.isnan(model.loss_K)]
            means.append(f"{known_K.mean():.2f}" if known_K.size else "no")
        tell(
            f"shadow model {shadow + 1} of {settings.count}: {model.steps:,} steps, "
            f"{model.seconds:.0f} s, {means[0]} nats per node on its own graphs, {means[1]} on the "
            "others"
        )

    held_out = "".join(graph_hash(dag) for dag in pool.data.held_out)
    target = {
        "weights": checkpoint_fingerprint(checkpoint.path),
        "graphs": f"{pool.data.fingerprint}-{derive_seed(0, held_out):016x}",
        "shadows": settings.count,
        "steps": settings.steps,
        "seconds": settings.seconds,
        "seed": settings.seed,
    }
    with tempfile.TemporaryDirectory(prefix="layerdag-") as temporary:
        place = settings.folder or Path(temporary) / "shadows"
        with shadow_lock(place, target) as folder:
            models = kept_models(folder, settings.count, len(pool.scored), trained, report)
    return models, member_SG, planned


@dataclass(frozen=True, eq=False)
class ShadowReport:
    """How shadow models were trained, and what models made in this way give away.

    Attributes:
        graphs: Training graphs of each, the median.
        runs: Distinct programs among training and held-out graphs, of which halves were drawn.
        start: What they started from, in words.
        is_recorded: Whether the checkpoint says how it was trained; else the usual settings were
            taken.
        steps: Of each, the median.
        planned_steps: That make as many passes over the graphs as the checkpoint made.
        as_targets: Each model attacked by the others, pooled.
    """

    models: int
    graphs: int
    runs: int
    start: str
    is_recorded: bool
    steps: int
    planned_steps: int
    seconds: float
    as_targets: tuple[AttackResult, ...]

    @property
    def fraction_of_passes(self) -> float:
        """Passes over its graphs that a shadow model made, as a fraction of the checkpoint's."""
        return min(self.steps / max(self.planned_steps, 1), 1.0)

    def in_words(self) -> str:
        """Return how they were trained, as a line."""
        passes = "as many passes over its graphs as the checkpoint made"
        if self.fraction_of_passes < 1:
            passes = f"{self.fraction_of_passes:.0%} of the passes that the checkpoint made"
        recipe = "" if self.is_recorded else ", with the usual settings (it records none)"
        return (
            f"{self.models} shadow models of {self.graphs:,} graphs, halves of {self.runs:,} "
            f"distinct ones, from {self.start}: {self.steps:,} steps each, {passes}{recipe}; "
            f"{self.seconds:.0f} s. Each as the target of the others:"
        )


def shadow_attacks(
    checkpoint: LoadedCheckpoint, data: GraphDataset, settings: ShadowSettings, tell: Tell
) -> tuple[tuple[AttackResult, ...], ShadowReport]:
    """Attack weights by likelihood ratio, with shadow models that are trained now.

    Returns:
        The attacks offline and online. Beside each stands the same one where nothing can leak: on
        each shadow model by the others, the checkpoint's training graphs against its held-out
        ones, of those that the model left out.

    Raises:
        UsageError: If there are too few graphs, or the start is not at hand.
    """
    pool = ShadowPool.from_dataset(data, settings.seed)
    recipe = recipe_of(checkpoint, data, settings.init)
    models, member_SG, planned = shadow_models(checkpoint, pool, recipe, settings, tell)
    shadows = ShadowLosses(np.stack([model.loss_K for model in models]), member_SG[:, pool.scored])
    members = int((pool.scored < len(data.members)).sum())
    run_K, seed, count = pool.run_G[pool.scored], settings.seed, len(models)
    targets = shadows_as_targets(shadows)
    left_out = f"graphs that {count} shadow models left out, each model as the target"
    found = []
    for attack in likelihood_ratio_attacks(
        pool.losses_under(checkpoint.model), shadows, members, seed
    ):
        scores = scores_as_members(targets[attack.name], members)
        holdout = pooled_attack(attack.name, left_out, scores, run_K, seed)
        found.append(replace(attack, holdout=holdout))
    each = f"each of {count} shadow models as the target of the others"
    pooled = [pooled_attack(name, each, scores, run_K, seed) for name, scores in targets.items()]
    further = len(data.graphs["train"]) - len(data.members)
    return tuple(found), ShadowReport(
        models=count,
        graphs=further + int(np.median(member_SG.sum(axis=1))),
        runs=pool.runs,
        start="random weights" if recipe.init is None else "the checkpoint's own start",
        is_recorded=recipe.is_recorded,
        steps=int(np.median([model.steps for model in models])),
        planned_steps=planned,
        seconds=sum(model.seconds for model in models),
        as_targets=tuple(one for one in pooled if one is not None),
    )
