"""Everything that a table fits, by name, with the settings that are tried."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import layerdag as ld
from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import coded
from layerdag.evaluation.side_by_side import (
    GENERATORS,
    GraphGenerator,
    fitted_generator,
)
from layerdag.graph.attributed_graph import Condition
from layerdag.runtime.rng import numpy_generator
from layerdag.sampling.generation import sample_rows
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import LoadedCheckpoint, load_checkpoint
from layerdag.training.loop import train as train_run
from layerdag.training.model_spec import spec_for
from layerdag.training.run import assemble
from layerdag.training.settings import LearningRateSchedule, OptimizerConfig

from .baselines import (
    Fit,
    fit_diffusion,
    fit_dvae,
    fit_language_model,
    fit_markov,
    fit_recipes,
    fit_recurrent,
    fit_resampler,
)
from .baselines._base import in_random_order, most_nodes

PROBE = 15
"""Steps of the short run that finds how long a step takes."""


class FittedModel:
    """A model of the package with how it is sampled.

    Args:
        checkpoint: Of the model.
        options: Of ``GenerationSettings``.
    """

    def __init__(self, checkpoint: LoadedCheckpoint, options: Mapping[str, Any]) -> None:
        options = dict(options)
        variants = options.pop("variants", {})
        self.checkpoint, self.options = checkpoint, options
        self.model = checkpoint.model.eval()
        self.schema = GraphSchema.from_dict(checkpoint.schema)
        self.parameters = sum(weight.numel() for weight in self.model.parameters())
        self.steps = checkpoint.meta.step
        self.variants = {name: partial(self._sample, given) for name, given in variants.items()}

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return graphs without conditions; None where one reached the limit of its size."""
        return self._sample({}, num, seed)

    def _sample(self, given: Mapping[str, Any], num: int, seed: int) -> list[DAG | None]:
        return self.sample_rows([{}] * num, seed, **given)

    def sample_rows(
        self, rows: Sequence[Mapping[str, Condition]], seed: int, **given: Any
    ) -> list[DAG | None]:
        """Return one graph for each row of conditions, with other options than usual."""
        settings = GenerationSettings(seed=seed, **{**self.options, **given})
        made = sample_rows(self.model, self.schema, rows, settings)
        return [None if graph.truncated else graph.dag for graph in made]


def fit_fast(
    data: GraphDataset,
    seconds: float,
    seed: int,
    *,
    learning_rate: float = 3e-3,
    batch_nodes: int = 1000,
    copies: int = 1,
    sampling: Mapping[str, Any] | None = None,
    **options: Any,
) -> FittedModel:
    """Train ``model=fast``.

    Args:
        data: Training and validation graphs.
        seconds: Of training, on the processor, without validation.
        seed: Of the fit.
        learning_rate: Peak rate.
        batch_nodes: Nodes of a batch.
        copies: Each training graph occurs so often, each time in another order inside its layers.
        sampling: Options of ``GenerationSettings``; "variants" are further ones by name.
        **options: Of the model.
    """
    given = {"guidance": 1.0, "best_of": 1, "batch_size": 100, "max_nodes": _limit(data)}
    data = with_random_orders(data, copies, seed) if copies > 1 else data
    checkpoint = _trained(data, "fast", seconds, seed, learning_rate, batch_nodes, options)
    return FittedModel(checkpoint, {**given, **(sampling or {})})


def fit_reference(
    data: GraphDataset,
    seconds: float,
    seed: int,
    *,
    learning_rate: float = 1e-3,
    batch_nodes: int = 1000,
    **options: Any,
) -> FittedModel:
    """Train ``model=reference``, the published method with its faults repaired."""
    options = {"sampling_precision": "float32", **options}
    checkpoint = _trained(data, "reference", seconds, seed, learning_rate, batch_nodes, options)
    return FittedModel(
        checkpoint, {"guidance": 1.0, "best_of": 1, "batch_size": 100, "max_nodes": _limit(data)}
    )


def _limit(data: GraphDataset) -> int:
    """Return the nodes at which a sample is given up: twice those of the largest graph."""
    return 2 * most_nodes(data)


def _trained(
    data: GraphDataset,
    model: str,
    seconds: float,
    seed: int,
    learning_rate: float,
    batch_nodes: int,
    options: Mapping[str, Any],
) -> LoadedCheckpoint:
    """Train for so many processor seconds: the number of steps follows from a short run."""
    spec = spec_for(data, model, options)
    clock = _Clock()

    def train(steps: int, folder: Path) -> LoadedCheckpoint:
        settings = ld.TrainSettings(
            seed=seed,
            max_steps=steps,
            batch_nodes=batch_nodes,
            optimizer=OptimizerConfig(learning_rate=learning_rate),
            lr_schedule=LearningRateSchedule(shape="cosine"),
            ema_decay=0.99,
            patience=0,
            evaluate_every=max(steps // 3, 1),
            log_every=1,
        )
        run = assemble(data, folder, spec)
        result = train_run(run, settings, loggers=[clock])
        if result.reason != "budget":
            raise SystemExit(f"Stopped by {result.reason}; the same command goes on.")
        return load_checkpoint(result.best)

    with tempfile.TemporaryDirectory() as folder:
        train(PROBE, Path(folder) / "probe")
        steps = max(int(seconds / clock.of_a_step()), 10)
        return train(steps, Path(folder) / "run")


class _Clock:
    """A logger that keeps how much time of the processor has passed at each step."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the time, if it is a step and no validation that is logged."""
        if any(name.startswith("train/") for name in values):
            self.times.append(time.process_time())

    def picture(self, step: int, name: str, file: Path) -> None:
        """Ignore pictures."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def of_a_step(self) -> float:
        """Return the median time of a step after the first few."""
        return max(float(np.median(np.diff(self.times[3:]))), 1e-3)


def with_random_orders(data: GraphDataset, copies: int, seed: int) -> GraphDataset:
    """Return the data set with each training graph in so many random orders inside its layers."""
    rng = numpy_generator(seed, "orders")
    dags = tuple(in_random_order(dag, rng) for _ in range(copies) for dag in data.graphs["train"])
    names = tuple(str(i) for i in range(len(dags)))
    return data.replaced(
        graphs={**data.graphs, "train": dags},
        names={**data.names, "train": names},
        contents={**data.contents, "train": ()},
    )


@dataclass(frozen=True)
class Learner:
    """What is fitted.

    Attributes:
        name: In tables and files.
        title: On pages.
        fit: Fits it.
        trials: Settings that are tried on the validation part; one where nothing is chosen.
        everywhere: Whether it is part of every task, and not of the first alone.
        budget: Times the usual seconds.
    """

    name: str
    title: str
    fit: Fit
    trials: tuple[Mapping[str, Any], ...] = ({},)
    everywhere: bool = True
    budget: float = 1.0


class Registered:
    """A generator that was registered, or that an installed package declares, in a table.

    Args:
        generator: Fitted.
        data: That it was fitted on, whose codes samples get.
    """

    parameters, steps = 0, 0

    def __init__(self, generator: GraphGenerator, data: GraphDataset) -> None:
        self.generator, self.data = generator, data

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return graphs; None where what was drawn is no graph of the data set's words."""
        made = self.generator.sample(num, seed)
        return list(coded(made, self.data.schema, self.data.renamed).dags)


def fit_registered(name: str, data: GraphDataset, seconds: float, seed: int) -> Registered:
    """Fit a registered generator, which takes the time that it takes."""
    del seconds, seed
    return Registered(fitted_generator(name, data), data)


def registered() -> tuple[Learner, ...]:
    """Return a learner for each registered generator and each one of an installed package."""
    return tuple(Learner(n, n, partial(fit_registered, n)) for n in GENERATORS.names())


_ONE_STEP: Mapping[str, Any] = {"node": {"steps": 1}, "edge": {"steps": 1}}

REFERENCES = (
    Learner(
        "reference",
        "`reference` (LayerDAG)",
        fit_reference,
        ({}, {"learning_rate": 3e-3}, {"batch_nodes": 500}),
    ),
    Learner(
        "reference_one_step",
        "`reference`, T = 1",
        fit_reference,
        (_ONE_STEP, {**_ONE_STEP, "learning_rate": 3e-3}, {**_ONE_STEP, "batch_nodes": 500}),
    ),
)
"""The published method, and the same with a single denoising step."""

BASELINES = (
    Learner("resampler", "training graphs drawn again", fit_resampler),
    Learner("recipes", "recipes, WfGen-like", fit_recipes),
    Learner("markov", "layerwise Markov tables", fit_markov),
    Learner(
        "recurrent",
        "GraphRNN-like",
        fit_recurrent,
        ({}, {"learning_rate": 1e-3}, {"width": 192, "edge_width": 96}),
    ),
    Learner(
        "dvae",
        "D-VAE-like",
        fit_dvae,
        ({}, {"learning_rate": 1e-3}, {"width": 64}),
    ),
    Learner(
        "language_model",
        "transformer over tokens",
        fit_language_model,
        ({}, {"learning_rate": 1e-3}, {"width": 128, "depth": 2}),
    ),
    Learner(
        "diffusion",
        "one-shot diffusion, Directo-like",
        fit_diffusion,
        ({}, {"learning_rate": 1e-3}, {"chain": 100}),
    ),
    *registered(),
)
