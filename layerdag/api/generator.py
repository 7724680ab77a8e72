"""``Generator``: train, sample, save, audit; the same as functions."""

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from layerdag.datasets.conversion import GraphLike
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.loading import load_dataset
from layerdag.dp.private_run import private_run, require_private
from layerdag.dp.settings import Privacy
from layerdag.dp.tuning import tune_privately
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import Condition
from layerdag.models.base import DAGModel
from layerdag.models.spec import ModelSpec
from layerdag.privacy.auditing import Audit, audit as audit_graphs
from layerdag.runtime.settings import did_you_mean
from layerdag.sampling.failed_samples import failed_samples
from layerdag.sampling.folder import write_sample_list, write_samples as sample_into
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.generation import generate as generate_graphs
from layerdag.sampling.parts import PartSettings, write_parts as write_run_parts
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import (
    BEST,
    META,
    SAMPLED,
    SHIPPED,
    CheckpointMeta,
    LoadedCheckpoint,
    checkpoint_schema,
    export_checkpoint,
    load_checkpoint as load_checkpoint_folder,
    pretrained_checkpoint,
)
from layerdag.training.loggers import Logger
from layerdag.training.loop import train as train_run
from layerdag.training.model_spec import spec_for
from layerdag.training.run import TrainingRun, assemble
from layerdag.training.settings import TrainSettings
from layerdag.training.warm_start import warm_start

Trainable = GraphDataset | Sequence[GraphLike] | str | Path

# What other libraries call a setting, and its name here.
_TRAIN_GUESSES = {
    **dict.fromkeys(("epochs", "num_epochs", "steps", "num_steps", "n_epochs"), "max_steps"),
    **dict.fromkeys(("lr", "learning_rate"), "settings=TrainSettings(optimizer=...)"),
    **dict.fromkeys(("batch_size",), "batch_graphs or batch_nodes"),
}
_SAMPLE_GUESSES = dict.fromkeys(("n", "num_samples", "n_samples", "count", "num_graphs"), "num")


class Generator:
    """A generative model of graphs: train it or read it, then sample.

    Args:
        model: "fast", or "reference" (LayerDAG as published).
        **settings: How to train, by the names of ``TrainSettings``, and settings of the model.

    Attributes:
        name: Name of the model.
        settings: How it was trained here; None for one that was read.
    """

    def __init__(self, model: str = "fast", **settings: Any) -> None:
        _refuse_guesses(settings, _TRAIN_GUESSES, "Generator")
        self.name = model
        self.settings: TrainSettings | None = None
        self._options = settings
        self._checkpoint: LoadedCheckpoint | None = None

    @classmethod
    def from_pretrained(
        cls, name: str | Path = SAMPLED, *, device: torch.device | str = "cpu"
    ) -> "Generator":
        """Read a checkpoint: one inside the package by its name, or a folder.

        Args:
            name: "programs" or "public" (forward programs), "corpus" (training jobs as graphs; also
                "pretrained"), or the folder of a checkpoint or run.
            device: Where the model lies.

        Raises:
            CheckpointError: If it cannot be read.
        """
        shipped = {**{folder: key for key, folder in SHIPPED.items()}, **{k: k for k in SHIPPED}}
        folder = Path(name)
        if str(name) in shipped:
            folder = pretrained_checkpoint(shipped[str(name)])
        elif (folder / BEST).is_dir() and not (folder / META).is_file():
            folder = folder / BEST
        return cls.from_checkpoint(load_checkpoint_folder(folder, device))

    @classmethod
    def from_checkpoint(
        cls, checkpoint: LoadedCheckpoint, settings: TrainSettings | None = None
    ) -> "Generator":
        """Return the generator of a checkpoint that was read."""
        generator = cls(checkpoint.spec.name)
        generator._checkpoint, generator.settings = checkpoint, settings
        return generator

    def fit(self, data: Trainable, **options: Any) -> "Generator":
        """Train on a data set, or on graphs of any kind, and return itself; see ``train``."""
        made = train(data, self.name, **{**self._options, **options})
        self._checkpoint, self.settings = made._checkpoint, made.settings
        return self

    def sample(
        self,
        num: int = 16,
        *,
        seed: int = 0,
        conditions: Mapping[str, Condition] | None = None,
        **settings: Any,
    ) -> list[GeneratedGraph]:
        """Sample graphs into memory; see ``layerdag.sample``."""
        return list(self.generate(num, seed=seed, conditions=conditions or {}, **settings))

    def generate(self, num: int = 16, **settings: Any) -> Iterator[GeneratedGraph]:
        """Yield sampled graphs one after the other; see ``layerdag.sample``."""
        return generate_graphs(self.model, self.schema, _generation(num, settings))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the checkpoint, without what only resuming needs; return its folder."""
        export_checkpoint(self.path, folder, overwrite=overwrite)
        return Path(folder)

    @property
    def checkpoint(self) -> LoadedCheckpoint:
        """Model, schema and origin as they were read. Raises UsageError before training."""
        if self._checkpoint is None:
            raise UsageError(
                "The generator is not trained; call fit(data), or Generator.from_pretrained(name)."
            )
        return self._checkpoint

    @property
    def model(self) -> DAGModel:
        """The network, in evaluation mode."""
        return self.checkpoint.model

    @property
    def schema(self) -> GraphSchema:
        """What the codes of its graphs mean."""
        return checkpoint_schema(self.checkpoint)

    @property
    def spec(self) -> ModelSpec:
        """The model as plain data."""
        return self.checkpoint.spec

    @property
    def meta(self) -> CheckpointMeta:
        """Where it comes from."""
        return self.checkpoint.meta

    @property
    def path(self) -> Path:
        """Folder of the checkpoint."""
        return self.checkpoint.path

    def __repr__(self) -> str:
        """Return model, size, step and kind of graphs in one line."""
        if self._checkpoint is None:
            return f"Generator({self.name}, not trained)"
        count = sum(parameter.numel() for parameter in self.model.parameters())
        size = f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"
        kind = self.schema.kind.plural
        return f"Generator({self.name}, {size} parameters, step {self.meta.step:,}, {kind})"


def load_checkpoint(folder: str | Path, device: torch.device | str = "cpu") -> Generator:
    """Read a checkpoint by its folder or name; the same as ``Generator.from_pretrained``."""
    return Generator.from_pretrained(folder, device=device)


def as_generator(thing: Generator | LoadedCheckpoint | str | Path | None) -> Generator:
    """Return a generator as it is, or read it; None is the one inside the package."""
    if isinstance(thing, Generator):
        return thing
    if isinstance(thing, LoadedCheckpoint):
        return Generator.from_checkpoint(thing)
    return Generator.from_pretrained(SAMPLED if thing is None else thing)


def sample(
    generator: Generator | LoadedCheckpoint | str | Path | None = None,
    num: int = 16,
    seed: int = 0,
    *,
    conditions: Mapping[str, Condition] | None = None,
    **settings: Any,
) -> list[GeneratedGraph]:
    """Sample graphs into memory.

    Args:
        generator: What ``train`` or ``load_checkpoint`` returned, or a checkpoint's folder; None
            is "programs", the checkpoint of forward programs inside the package.
        num: Number of graphs.
        seed: Graph i is sampled with ``seed + i`` and depends on nothing else of the call.
        conditions: Wanted conditions in their own units, such as ``{"family": "gpt"}``; open ones
            are drawn from what the training graphs were like.
        **settings: Further ``GenerationSettings``: steps, guidance, best_of, max_nodes, ...

    Returns:
        Graphs with ``dag`` (codes), ``graph`` (names and numbers) and ``workload()`` (traces).

    Raises:
        UsageError: If a setting is unknown or out of bounds.
        VocabularyError: If a condition or its category is unknown; names the nearest one.
    """
    return as_generator(generator).sample(num, seed=seed, conditions=conditions, **settings)


def generate(
    generator: Generator | LoadedCheckpoint | str | Path, num: int = 16, **settings: Any
) -> Iterator[GeneratedGraph]:
    """Yield sampled graphs one after the other; arguments are those of ``sample``."""
    return as_generator(generator).generate(num, **settings)


def write_samples(
    generator_or_samples: Generator | LoadedCheckpoint | str | Path | Sequence[GeneratedGraph],
    out: str | Path,
    *,
    file_format: str = "auto",
    overwrite: bool = False,
    settings: GenerationSettings | None = None,
    **options: Any,
) -> Path:
    """Write samples into a folder, where a stopped run goes on; return the path of its manifest.

    Args:
        generator_or_samples: What to sample from, or samples that are there already.
        out: The folder.
        file_format: "et" (traces), "graphml" or "json"; "auto" is "et" for jobs, else "graphml".
        overwrite: Whether samples that lie in ``out`` may be replaced; nothing else ever is.
        settings: What to sample; ``options`` of the same names replace some.
        **options: ``num``, ``seed`` and further ``GenerationSettings``.
    """
    if not isinstance(out, str | Path):
        raise UsageError(
            "write_samples takes what to write and then the folder: write_samples(generator, "
            '"samples", num=100).'
        )
    if isinstance(generator_or_samples, Generator | LoadedCheckpoint | str | Path):
        made = as_generator(generator_or_samples).checkpoint
        wanted = _generation(None, options, settings)
        path = sample_into(made, wanted, out, file_format=file_format, overwrite=overwrite)
        return _told(path, wanted.num)
    if options or settings is not None:
        raise UsageError("These are samples already; leave the settings of sampling out.")
    return write_sample_list(
        generator_or_samples, Path(out), file_format=file_format, overwrite=overwrite
    )


def write_parts(
    generator: Generator | LoadedCheckpoint | str | Path,
    out: str | Path,
    *,
    parts: PartSettings | None = None,
    overwrite: bool = False,
    settings: GenerationSettings | None = None,
    **options: Any,
) -> Path:
    """Write many samples into few files; return the file that describes the run.

    Arguments are those of ``write_samples``, and ``parts``: format, size and share of the parts.
    """
    if not isinstance(out, str | Path):
        raise UsageError(
            "write_parts takes what to sample from and then the folder: write_parts(generator, "
            '"samples", num=100_000).'
        )
    wanted = _generation(None, options, settings)
    made = as_generator(generator).checkpoint
    return _told(write_run_parts(made, wanted, out, parts, overwrite=overwrite), wanted.num)


def _told(path: Path, num: int) -> Path:
    """Return the path of a run; warn of samples that are missing from it."""
    missing = failed_samples(path, num)
    if missing:
        warnings.warn(missing, stacklevel=3)
    return path


def _generation(
    num: int | None, options: Mapping[str, Any], settings: GenerationSettings | None = None
) -> GenerationSettings:
    _refuse_guesses(options, _SAMPLE_GUESSES, "sample")
    known = [field.name for field in fields(GenerationSettings)]
    for name in options:
        if name not in known:
            raise UsageError(
                f"sample has no setting '{name}'.{did_you_mean(name, known)} Known are "
                f"{', '.join(known)}."
            )
    numbers: dict[str, Any] = {} if num is None else {"num": num}
    return replace(settings or GenerationSettings(), **numbers, **options)


def _refuse_guesses(options: Mapping[str, Any], guesses: Mapping[str, str], call: str) -> None:
    for name in options:
        if name in guesses:
            raise UsageError(f"{call} has no setting '{name}'; use {guesses[name]}.")


def train(
    data: Trainable,
    model: str | None = None,
    *,
    init: str | Path | None = None,
    out: str | Path | None = None,
    settings: TrainSettings | None = None,
    device: torch.device | str = "cpu",
    overwrite: bool = False,
    loggers: Sequence[Logger] = (),
    privacy: Privacy | None = None,
    **options: Any,
) -> Generator:
    """Train a model and return it with its best weights, ready for ``sample``.

    Args:
        data: A data set, or what ``load_dataset`` takes: a name, a folder, a list of graphs.
        model: "fast", or "reference" (LayerDAG as published); None is "fast", or with ``init`` the
            model of that checkpoint.
        init: Start from the weights of a checkpoint, whose model is taken: its folder, or that of a
            run, or "pretrained" for the one inside the package. Words, bins and conditions of the
            data must be its own, as ``layerdag.datasets.encoding.load_with_schema`` loads them.
        out: Folder of the run, with checkpoints in ``best`` and ``last``. None keeps nothing: the
            checkpoint's files last as long as the returned object.
        settings: How to train; 2,000 steps by default.
        device: Where.
        overwrite: Whether an older run in ``out`` may be replaced; nothing else ever is.
        loggers: Take figures while it trains, beside the log ``train.jsonl`` in the run's folder.
        privacy: Tune few parameters of ``init`` under differential privacy instead, on the
            training part alone, by the schema of ``init`` (docs/how-to/differential-privacy.md).
        **options: Fields of ``TrainSettings``, such as ``max_steps=500``, and settings of the
            model, such as ``width=64``.

    Raises:
        ConfigError: If there is no such model or option, or it contradicts ``init``, or something
            would reveal private graphs.
        GraphError: If the training or the validation part is empty.
        TrainingError: If training diverged.
    """
    if isinstance(data, TrainingRun):
        raise UsageError(
            "train takes a data set; for a TrainingRun call layerdag.training.loop.train."
        )
    _refuse_guesses(options, _TRAIN_GUESSES, "train")
    known = {field.name for field in fields(TrainSettings)}
    of_model = {name: value for name, value in options.items() if name not in known}
    of_training = {name: value for name, value in options.items() if name in known}
    settings = replace(settings or TrainSettings(), **of_training)
    if privacy is not None and privacy.is_on:
        require_private(privacy, init, settings, {"model": model, **of_model}, loggers)
        assert init is not None
        owned = data if isinstance(data, GraphDataset | str | Path) else load_dataset(data)
        run = private_run(owned, init, privacy, Path(), seed=settings.seed, overwrite=overwrite)

        def tuned(folder: Path) -> LoadedCheckpoint:
            result = tune_privately(replace(run, directory=folder), device=device, loggers=loggers)
            return load_checkpoint_folder(result.run.best, device)

        return Generator.from_checkpoint(_kept(out, tuned))
    if not isinstance(data, GraphDataset):
        data = load_dataset(data)
    if init is None:
        spec, start = spec_for(data, model or "fast", of_model), None
    else:
        warm = warm_start(init, data, model, of_model)
        spec, start = warm.spec, warm.start

    def trained(folder: Path) -> LoadedCheckpoint:
        config = {"training": asdict(settings)}
        run = assemble(data, folder, spec, start=start, run_config=config, overwrite=overwrite)
        result = train_run(run, settings, device=device, loggers=loggers)
        return load_checkpoint_folder(result.best, device)

    return Generator.from_checkpoint(_kept(out, trained), settings)


def _kept(out: str | Path | None, make: Callable[[Path], LoadedCheckpoint]) -> LoadedCheckpoint:
    if out is not None:
        return make(Path(out))
    directory = Path(tempfile.mkdtemp(prefix="layerdag-"))
    try:
        checkpoint = make(directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    weakref.finalize(checkpoint, shutil.rmtree, directory, ignore_errors=True)
    return checkpoint


def audit(samples: Any = None, data: Any = None, weights: Any = None, **options: Any) -> Audit:
    """Compare samples with training and held-out graphs, and attack.

    Args:
        samples: What ``sample`` returned, or a folder that ``layerdag sample`` wrote.
        data: The data set that the generator learned from, split as it was then.
        weights: The generator that was sampled from, or its folder, for attacks on weights; also
            called ``checkpoint``.
        **options: Of ``layerdag.privacy.auditing.audit``: shadows, train, holdout, synthetic.

    Raises:
        UsageError: If samples or weights are known to come from another split of the data.
    """
    weights = options.pop("checkpoint", weights)
    if isinstance(weights, Generator):
        weights = weights.checkpoint
    return audit_graphs(samples, data, weights, **options)
