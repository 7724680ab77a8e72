"""What each part of the fast model is worth: train without it, for equally many steps, over seeds.

"full" is what ``layerdag train`` trains: numbers of children are predicted in flow graphs, not in
jobs. Every variant is trained from scratch, or takes the weights of "full" where it differs in
sampling alone, and samples graphs for the conditions of training graphs.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.settings import CorpusConfig, TpuTileConfig
from layerdag.datasets.tpu_tile import load_tpu_tile
from layerdag.models.base import DAGModel
from layerdag.models.spec import build_model
from layerdag.sampling.generation import sample_rows
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import LoadedCheckpoint, load_checkpoint

from .._base import Options
from .._runs import Figures, Record, Run, Store
from ._ablations_page import ablations_page
from ._fit import trained_in
from ._judge import Judge, copied
from ._variants import VARIANTS, Variant, seen_by, settings_of, spec_of

USUAL_SECONDS = 30.0
"""Seconds in the options for which a data set has its own number of steps; others in proportion."""

QUICK_VARIANTS = 4
"""The first variants, which share their weights, where not all tasks are made."""


@dataclass(frozen=True)
class Ground:
    """A data set on which variants are compared.

    Attributes:
        name: In the names of runs.
        load: Returns it.
        steps: Of each variant.
        left_out: Variants that differ from no other one there.
    """

    name: str
    load: Callable[[], GraphDataset]
    steps: int
    left_out: Sequence[str] = field(default_factory=tuple)


class Workshop:
    """Weights of a data set's experiments, trained where they are missing.

    Args:
        data: Training and validation graphs.
        folder: Where the weights of this data set lie; what is there is not trained again.
    """

    def __init__(self, data: GraphDataset, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.judge = Judge(data, split="val")

    def weights(self, experiment: str, steps: int, seed: int) -> tuple[LoadedCheckpoint, float]:
        """Return the best weights and the processor seconds of training, 0 if they were there."""
        kept = self.folder / f"{experiment}-steps{steps}-seed{seed}"
        if kept.exists():
            return load_checkpoint(kept / "best"), 0.0
        self.folder.mkdir(parents=True, exist_ok=True)
        began = time.process_time()
        seen, spec = seen_by(experiment, self.data), spec_of(experiment, self.data)
        with tempfile.TemporaryDirectory(dir=self.folder) as fresh:
            folder = Path(fresh) / "run"
            trained_in(folder, seen, spec, settings_of(experiment, steps, seed))
            folder.rename(kept)
        return load_checkpoint(kept / "best"), time.process_time() - began

    def figures(self, variant: Variant, run: Run) -> Figures:
        """Train a variant, sample it, and judge the samples beside the validation part."""
        steps = run.config["steps"]
        checkpoint, spent = self.weights(variant.trained, steps, run.seed)
        model = build_model(spec_of(variant.experiment, self.data))
        model.load_state_dict(checkpoint.model.state_dict())
        samples = self._samples(variant, model.eval(), run)
        found = self.judge.similarity(samples)
        return {
            "nats": round(checkpoint.meta.metrics["validation/total_per_graph"], 3),
            "mean_ratio": found["mean_ratio"],
            "new_neighborhoods": found["new_neighborhoods"],
            "ratios": found["ratios"],
            "copied": copied(samples, self.data.graphs["train"]),
            "agreement": self._agreement(samples, steps),
            "step_processor_s": round(spent / steps, 4) if spent else None,
        }

    def _samples(self, variant: Variant, model: DAGModel, run: Run) -> list[DAG]:
        """Return a sample for each of the first training graphs, as far as it knows conditions."""
        data = seen_by(variant.experiment, self.data)
        train = data.graphs["train"]
        settings = GenerationSettings(
            seed=1000 * run.seed,
            batch_size=64,
            max_nodes=2 * max(dag.num_nodes for dag in train),
            **variant.sampling,
        )
        rows = [dag.conditions for dag in train[: run.config["samples"]]]
        return [sample.dag for sample in sample_rows(model, data.schema, rows, settings)]

    def _agreement(self, samples: Sequence[DAG], steps: int) -> float:
        """Return how likely the full model's posterior finds the wanted conditions, nats."""
        rows = [dag.conditions for dag in self.data.graphs["train"][: len(samples)]]
        batch = DAGBatch.from_dags(samples, *self.data.schema.encode_conditions(rows))
        model: Any = self.weights("full", steps, 0)[0].model.eval()
        with torch.no_grad():
            return round(float(model.posterior.log_likelihood(batch).mean()), 4)


class Ablations:
    """TPU Tile where its folder is given, and jobs of the embedded corpus.

    Args:
        folder: Of TPU Tile.
        weights: Where weights are kept between runs.
    """

    name = "ablations"
    about = "what each part of the fast model is worth"

    def __init__(self, folder: Path | None = None, weights: Path | None = None) -> None:
        self.folder = folder
        self.kept = weights or Path("outputs") / "tables" / "weights"

    def grounds(self) -> list[Ground]:
        """Return the data sets that are at hand."""
        # These jobs fit into the attention window but for a few tokens, and are sampled without
        # guidance and trained without out-degree prediction anyway.
        same = ("all pairs", "no out-degree prediction", "no posterior, no guidance")
        jobs = Ground("jobs", partial(load_corpus, CorpusConfig(max_nodes=80)), 250, same)
        if self.folder is None:
            return [jobs]
        fewer = ("all pairs", "independent attributes", "out-degree prediction")
        return [
            Ground(
                "tpu_tile", partial(load_tpu_tile, TpuTileConfig(folder=self.folder)), 480, fewer
            ),
            jobs,
        ]

    def make(self, store: Store, options: Options) -> Iterator[Record]:
        """Make the runs: all variants of all data sets with one seed before the next seed."""
        for seed in range(options.seeds):
            for ground in self.grounds()[: options.tasks]:
                if options.only in (None, ground.name):
                    yield from self._made(store, ground, seed, options)

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        return ablations_page(records)

    def _made(self, store: Store, ground: Ground, seed: int, options: Options) -> Iterator[Record]:
        steps = max(round(ground.steps * options.seconds / USUAL_SECONDS), 2)
        workshop = Workshop(ground.load(), self.kept / ground.name)
        most = None if options.tasks is None else QUICK_VARIANTS
        for name, variant in list(VARIANTS.items())[:most]:
            if name in ground.left_out:
                continue
            config = {
                "task": ground.name,
                "variant": name,
                "experiment": variant.experiment,
                "sampling": dict(variant.sampling),
                "steps": steps,
                "samples": 2 * options.samples,
            }
            slug = name.replace(",", "").replace(" ", "_")
            run = Run(f"{ground.name}-{slug}-seed{seed}", "fast", seed, config)
            yield store.made(run, partial(workshop.figures, variant))
