"""A tiny public model and private jobs in its codes, for tests of private tuning."""

from dataclasses import dataclass
from pathlib import Path

import torch
from small_job_models import jobs
from tiny_checkpoints import job_checkpoint

from layerdag.dag.dag import DAGBatch
from layerdag.datasets.dataset import GraphDataset
from layerdag.dp.gradients import graph_nats
from layerdag.dp.settings import Privacy
from layerdag.dp.tuning import PrivateRun
from layerdag.dp.units import Units
from layerdag.models.base import DAGModel
from layerdag.training.checkpoint import (
    Guarantee,
    InitialWeights,
    LoadedCheckpoint,
    Origin,
    checkpoint_schema,
)

GUARANTEE = Guarantee(
    epsilon=3.0,
    delta=1e-3,
    unit="run",
    neighbors="one run replaced by an empty one",
    accountant="a library",
    noise_multiplier=1.5,
    sampling_rate=0.25,
    steps=40,
    clip=0.5,
    trained_parameters=2884,
    noise="a secret key",
)


@dataclass(frozen=True, eq=False)
class PrivateJobs:
    """A public model and private data in its codes."""

    base: LoadedCheckpoint
    data: GraphDataset

    @property
    def units(self) -> Units:
        """Return each job as a unit of its own."""
        return Units.from_owners(self.data.batch("train"), self.data.names["train"])

    def run(self, directory: Path, privacy: Privacy) -> PrivateRun:
        """Return a run that tunes the model on the jobs."""
        start = InitialWeights(self.base.model.state_dict(), Origin("base", "abc"))
        return PrivateRun(
            self.base.spec, start, self.base.schema, self.units, directory, privacy, overwrite=True
        )


def private_jobs(folder: Path, count: int = 12) -> PrivateJobs:
    """Return a public model, written to ``folder``, and jobs that it never saw."""
    base = job_checkpoint(folder)
    parts = {"train": jobs(count, first=100)}
    return PrivateJobs(base, GraphDataset.with_schema("mine", checkpoint_schema(base), parts))


def nats_of(model: DAGModel, graphs: DAGBatch) -> float:
    """Return the nats of all graphs."""
    with torch.no_grad():
        return float(graph_nats(model, graphs))
