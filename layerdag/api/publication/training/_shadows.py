"""Shadow models: the whole way from real graphs to a student, on other halves of the graphs.

Their losses alone are kept, in one file per model, so that a stopped audit goes on.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from layerdag._runtime import derive_seed, numpy_generator
from layerdag.api.auditing.shadows import ShadowModel, kept_models
from layerdag.api.publication import SHADOWS, ReleaseSettings, Work
from layerdag.api.publication.drawing import drawing_plan, published_graphs
from layerdag.api.publication.training._public import with_public
from layerdag.api.publication.training._recipe import run_of, train_or_resume
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset, Split
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import DataError, UsageError
from layerdag.evaluation.privacy import ShadowLosses, balanced_members, graph_losses
from layerdag.models import DAGModel
from layerdag.sampling import GeneratedGraph, GenerationSettings, generate
from layerdag.training import LoadedCheckpoint, load_checkpoint

VALIDATION_FRACTION = 0.1


@dataclass(frozen=True, eq=False)
class RealGraphs:
    """The real graphs of an audit.

    Attributes:
        graphs: Those that the target's teacher was trained on, then the held-out ones.
        runs: The run of each; graphs of one run are members together.
        members: Number of the former.
        scored: Positions of the graphs whose losses are taken, in ascending order.
        public: Public graphs that every student learns beside its samples; none is scored.
    """

    graphs: tuple[AttributedGraph, ...]
    runs: tuple[str, ...]
    members: int
    scored: np.ndarray
    public: tuple[AttributedGraph, ...] = ()

    @property
    def scored_members(self) -> int:
        """Number of scored graphs that are members."""
        return int((self.scored < self.members).sum())

    def losses_under(self, model: DAGModel, schema: GraphSchema) -> np.ndarray:
        """Return nats per node of the scored graphs; NaN where the model cannot express one.

        Args:
            model: A model.
            schema: Of what it was trained on.
        """
        chosen = [self.graphs[i] for i in self.scored.tolist()]
        coded = GraphDataset.with_schema("real", schema, {"train": chosen})
        loss_K = graph_losses(model, schema, coded.graphs["train"])
        known = dict(zip(coded.names["train"], loss_K.tolist(), strict=True))
        return np.array([known.get(graph.name, np.nan) for graph in chosen])


def shadow_losses(
    settings: ReleaseSettings,
    real: RealGraphs,
    target: LoadedCheckpoint,
    data: GraphDataset,
    work: Work,
    seconds: float,
) -> ShadowLosses:
    """Return the losses of the scored graphs under ``settings.shadows`` models.

    Each model goes the way of the target, on a random half of the real runs: teacher, as many
    samples as the target learned from, student.
    Its student has the target's schema, so that losses are in the same units.

    Args:
        settings: Of the release.
        real: The real graphs.
        target: The student that is attacked.
        data: The published samples, which it was trained on.
        work: The private folder.
        seconds: Most seconds that training one model may take.
    """
    folder = work.path / SHADOWS
    _start_anew_if_other(folder, settings, with_public(data, real.public))
    names = sorted(set(real.runs))
    rng = numpy_generator(settings.seed, "shadow members")
    member_SR = balanced_members(settings.shadows, len(names), rng)
    column = {name: i for i, name in enumerate(names)}
    run_G = np.array([column[run] for run in real.runs])

    def trained(shadow: int, path: Path) -> ShadowModel:
        chosen = np.flatnonzero(member_SR[shadow][run_G])
        own = replace(settings, seed=derive_seed(settings.seed, "shadow", str(shadow)) % 2**31)
        graphs = [real.graphs[i] for i in chosen]
        return _trained(own, graphs, real, target, data, path, seconds)

    models = kept_models(folder, settings.shadows, len(real.scored), trained)
    loss_SG = np.stack([model.loss_K for model in models])
    return ShadowLosses(loss_SG, member_SR[:, run_G[real.scored]])


def _start_anew_if_other(folder: Path, settings: ReleaseSettings, data: GraphDataset) -> None:
    """Discard the losses of an earlier audit of another student."""
    note = folder / "target.json"
    wanted = json.dumps({"samples": data.fingerprint, "shadows": settings.shadows})
    if folder.is_dir() and not (note.is_file() and note.read_text() == wanted):
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    note.write_text(wanted)


def _trained(
    settings: ReleaseSettings,
    graphs: Sequence[AttributedGraph],
    real: RealGraphs,
    target: LoadedCheckpoint,
    data: GraphDataset,
    path: Path,
    seconds: float,
) -> ShadowModel:
    """Return one shadow model of some real graphs, trained now."""
    made = _drawn(settings, graphs, data, path, seconds)
    copy = GraphDataset.with_schema("samples", data.schema, _parts(made, settings.seed))
    run = run_of(settings, with_public(copy, real.public), path / "student", target.spec)
    result = train_or_resume(run, settings, seconds)
    student = load_checkpoint(result.best)
    return ShadowModel(real.losses_under(student.model, copy.schema), result.step, result.seconds)


def _drawn(
    settings: ReleaseSettings,
    graphs: Sequence[AttributedGraph],
    data: GraphDataset,
    path: Path,
    seconds: float,
) -> list[AttributedGraph]:
    """Return samples of a teacher of the graphs, as many as the target learned from."""
    kind = data.schema.kind
    own = GraphDataset.build("shadow", kind, _parts(graphs, settings.seed))
    run = run_of(settings, own, path / "teacher")
    teacher = load_checkpoint(train_or_resume(run, settings, seconds).best)
    num = len(data.graphs["train"]) + len(data.graphs["val"])
    plan = drawing_plan(settings, num, settings.seed)
    samples = [s for s in _generated(teacher, own, plan) if not s.truncated]
    kept = list(published_graphs(samples))
    if len(kept) < 2:
        raise DataError(
            f"A shadow model of {len(graphs)} graphs drew {len(kept)} samples that can be written, "
            "and two are needed; train it for more --steps."
        )
    return kept


def _generated(
    teacher: LoadedCheckpoint, data: GraphDataset, plan: GenerationSettings
) -> list[GeneratedGraph]:
    """Return samples with predicted labels, or requested ones where there are none to predict."""
    with torch.no_grad():
        try:
            predicted = replace(plan, labels="predicted")
            return list(generate(teacher.model, data.schema, predicted))
        except UsageError:
            return list(generate(teacher.model, data.schema, plan))


def _parts(graphs: Sequence[AttributedGraph], seed: int) -> dict[Split, list[AttributedGraph]]:
    """Return graphs for training and, of them a tenth, for validation."""
    order = numpy_generator(seed, "shadow split").permutation(len(graphs))
    held = max(round(VALIDATION_FRACTION * len(graphs)), 1)
    return {
        "train": [graphs[i] for i in np.sort(order[held:]).tolist()],
        "val": [graphs[i] for i in np.sort(order[:held]).tolist()],
    }
