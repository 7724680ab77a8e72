"""Checkpoints: self-describing folders that are written whole and trusted with nothing.

See docs/reference/checkpoint-format.md for the files. Nothing in a checkpoint is executed: the
model class comes from a fixed table, tensors are read with safetensors or ``weights_only=True``,
the rest is JSON of bounded size.
"""

import hashlib
import io
import json
import math
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from layerdag.datasets.splits import SplitFingerprint
from layerdag.errors import CheckpointError, ConfigError
from layerdag.models.base import DAGModel
from layerdag.models.spec import ModelSpec, build_model, build_without_weights
from layerdag.runtime.files import FolderKind, atomic_folder, unexpected_files
from layerdag.runtime.json_shape import (
    found_value,
    from_json,
    parse_json,
    plain_reason,
    require_finite,
    require_known,
)
from layerdag.runtime.reading import available_memory, require_plain_archive
from layerdag.runtime.settings import shorten
from layerdag.schema.schema import GraphSchema
from layerdag.training.batches import local_device
from layerdag.version import __version__

# Weights of so many bytes are loaded without asking what is left.
_SMALL = 1 << 26


@dataclass(frozen=True)
class Origin:
    """The checkpoint whose weights a run started from."""

    name: str  # of its folder or run, without a path; "pretrained" for the one inside the package
    fingerprint: str  # SHA-256 of its weights file
    step: int = 0  # optimizer steps that it was trained for
    data_fingerprint: str = ""  # of the data that it was trained on


@dataclass(frozen=True, eq=False)
class InitialWeights:
    """What a run starts from instead of random weights."""

    weights: Mapping[str, Tensor]  # the whole state dict of the new model
    origin: Origin  # where they come from


def check_shapes(file: Path, spec: ModelSpec) -> None:
    """Compare the weights' names and shapes with the model's, before memory is spent on either.

    Raises:
        CheckpointError: If the file is missing or damaged, or is not of the model, or the model
            does not fit into memory.
        ConfigError: If the model cannot be built.
    """
    try:
        with safetensors.safe_open(file, framework="pt") as handle:
            found = {name: tuple(handle.get_slice(name).get_shape()) for name in handle.keys()}  # noqa: SIM118 - no mapping
    except FileNotFoundError:
        raise CheckpointError(f"{file} is missing; the checkpoint is incomplete.") from None
    except (safetensors.SafetensorError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"{file} cannot be read ({reason}); copy or train the checkpoint again."
        ) from error
    model = build_without_weights(spec)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    _check_memory(file, wanted.values())
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            raise CheckpointError(
                f"{file}: tensor '{name}' has shape {found.get(name, 'none')} but the model "
                f"that its checkpoint describes needs {wanted.get(name, 'none')}; the files are "
                "not of one checkpoint."
            )


def _check_memory(file: Path, shapes: Iterable[tuple[int, ...]]) -> None:
    needed = 4 * sum(math.prod(shape) for shape in shapes)
    if needed > _SMALL and needed > available_memory() // 3:
        raise CheckpointError(
            f"{file}: the model has {needed / 2**30:.1f} GiB of weights, more than a "
            "third of the memory that is free; use a machine with more."
        )


def check_finite(file: Path, model: DAGModel) -> None:
    """Refuse weights with which every answer of the model would be NaN.

    Raises:
        CheckpointError: Names the first tensor with NaN or an infinite value.
    """
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"{file}: tensor '{name}' holds NaN or infinite values; use an earlier checkpoint."
            )


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy of the weights, as recorded in ``meta.json``."""

    epsilon: float | None  # bound of the privacy loss; None without noise: nothing is promised
    delta: float  # probability with which the bound may fail
    unit: str  # "run" or "owner"
    neighbors: str  # between which data sets the bound holds
    accountant: str  # what computed it
    noise_multiplier: float  # standard deviation of the noise over the clipping norm
    sampling_rate: float  # probability with which a unit takes part in a step
    steps: int  # of tuning
    clip: float  # largest norm of a unit's gradient
    trained_parameters: int  # number of parameters that were tuned
    noise: str  # generator of noise and samples, and where its key comes from
    lower_bound: float | None = None  # of epsilon, measured with canaries; None if none took part

    def __str__(self) -> str:
        """Return one sentence."""
        if self.epsilon is None:
            return "clipped, but without noise: nothing is promised"
        return (
            f"(epsilon = {self.epsilon:.3g}, delta = {self.delta:.1g}) differential privacy of "
            f"each {self.unit}, {self.accountant}"
        )


FORMAT_VERSION = 4
MAX_JSON_BYTES = 64 * 2**20
DATA_PATHS = ("folder", "labels")

WEIGHTS, CONFIG, SCHEMA, META, TRAINER = (
    "weights.safetensors", "config.json", "schema.json", "meta.json", "trainer.pt",
)  # fmt: skip


@dataclass(frozen=True)
class CheckpointMeta:
    """Where a checkpoint comes from."""

    step: int = 0  # optimizer steps done
    seed: int = 0  # seed of the run
    data_fingerprint: str = ""  # of the training data, "" if unknown
    metrics: Mapping[str, float] = field(default_factory=dict)  # of validation, by name
    layerdag_version: str = __version__  # version of the package that wrote it
    torch_version: str = str(torch.__version__)  # version of torch that wrote it
    format_version: int = FORMAT_VERSION  # version of the directory's layout
    split: SplitFingerprint | None = None  # graphs for training, validation and test
    origin: Origin | None = None  # what training started from; None: random weights
    # What differential privacy the weights have; None if they were trained without, and then
    # ``meta.json`` has no such entry.
    privacy: Guarantee | None = None

    def __post_init__(self) -> None:
        for number in (self.step, self.seed):
            if not 0 <= number < 1 << 63:
                raise ValueError(f"found {found_value(number)} where a whole number belongs")


@dataclass(frozen=True, eq=False)
class LoadedCheckpoint:
    """A checkpoint that was read and checked."""

    model: DAGModel  # with the kept weights, in evaluation mode, on the device asked for
    spec: ModelSpec  # the model as plain data
    schema: dict[str, Any]  # the data set's schema as it was handed to ``save_checkpoint``
    run_config: dict[str, Any]  # the resolved configuration of the run
    meta: CheckpointMeta  # where it comes from
    path: Path  # where it lies

    def __repr__(self) -> str:
        """Return where it lies and what the model is, not the weights."""
        count = sum(weight.numel() for weight in self.model.parameters())
        model = type(self.model).__name__
        return f"LoadedCheckpoint({shorten(str(self.path), 60)!r}, {model}, {count:,} parameters)"

    @property
    def data_settings(self) -> dict[str, Any]:
        """How the run selected and split its data, without the paths of the machine it ran on."""
        settings = self.run_config.get("data")
        if not isinstance(settings, dict):
            return {}
        return {name: value for name, value in settings.items() if name not in DATA_PATHS}


def save_checkpoint(
    path: str | Path,
    spec: ModelSpec,
    weights: Mapping[str, Tensor],
    schema: Mapping[str, Any],
    run_config: Mapping[str, Any],
    meta: CheckpointMeta,
    trainer_state: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a checkpoint directory, whole or not at all.

    Weights are those that inference needs (averaged weights and buffers). What resuming needs is in
    ``trainer_state``: tensors and plain data. A checkpoint that stands there may be replaced with
    ``overwrite``; nothing else ever is.

    Raises:
        UsageError: If something stands at ``path`` that may not be replaced, or another process is
            writing there.
        OSError: If the disk is full, or the place cannot be written.
    """
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    with atomic_folder(path, CHECKPOINT, overwrite=overwrite) as draft:
        # Not save_file, which makes a file that only its owner may read.
        (draft / WEIGHTS).write_bytes(safetensors.torch.save(whole))
        config = {"model": spec.to_dict(), "run": dict(run_config)}
        _write_json(draft / CONFIG, config)
        _write_json(draft / SCHEMA, dict(schema))
        plain = asdict(meta)
        if meta.privacy is None:
            del plain["privacy"]
        _write_json(draft / META, plain)
        if trainer_state is not None:
            # Through a file of Python's: torch's writer turns a full disk into a RuntimeError.
            buffer = io.BytesIO()
            torch.save(dict(trainer_state), buffer)
            (draft / TRAINER).write_bytes(buffer.getbuffer())


def why_not_checkpoint(folder: Path) -> str:
    """Return why a folder is not provably a checkpoint that layerdag wrote, or ""."""
    strange = unexpected_files(folder, (WEIGHTS, CONFIG, SCHEMA, META, TRAINER).__contains__)
    if strange:
        return strange
    try:
        meta = _read_json(folder / META)
    except CheckpointError:
        return f"has no readable {META} of a checkpoint"
    proved = isinstance(meta.get("format_version"), int) and "layerdag_version" in meta
    return "" if proved else f"has a {META} that is not of a checkpoint"


CHECKPOINT = FolderKind("a checkpoint", why_not_checkpoint)


def load_checkpoint(path: str | Path, device: torch.device | str = "cpu") -> LoadedCheckpoint:
    """Read a checkpoint directory.

    Raises:
        CheckpointError: If a file is missing, damaged, of another format, or contradicts another.
    """
    path = Path(path)
    meta = read_meta(path)
    config = _read_json(path / CONFIG)
    schema = _read_json(path / SCHEMA)
    try:
        require_known(config, ("model", "run"))
        spec = ModelSpec.from_dict(config.get("model"))
        check_shapes(path / WEIGHTS, spec)
        model = build_model(spec)
    except ConfigError as error:
        raise CheckpointError(f"{path / CONFIG}: {error}") from error
    except ValueError as error:
        raise _damaged(path / CONFIG, error) from error
    model.load_state_dict(safetensors.torch.load_file(path / WEIGHTS))
    check_finite(path / WEIGHTS, model)
    run_config = config.get("run")
    return LoadedCheckpoint(
        model=model.to(local_device(device)).eval(),
        spec=spec,
        schema=schema,
        run_config=run_config if isinstance(run_config, dict) else {},
        meta=meta,
        path=path,
    )


def load_trainer_state(path: str | Path) -> dict[str, Any]:
    """Read what resuming needs.

    Raises:
        CheckpointError: If the checkpoint is for inference only, or the file is damaged.
    """
    read_meta(Path(path))
    file = Path(path) / TRAINER
    if not file.is_file():
        raise CheckpointError(
            f"{path} holds weights for sampling only ({TRAINER} is missing); "
            "resume from the run's 'last' checkpoint."
        )
    require_plain_archive(file, CheckpointError)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (
        *(pickle.UnpicklingError, RuntimeError, EOFError, ValueError, OSError),
        *(MemoryError, OverflowError, KeyError, TypeError, AttributeError, IndexError),
    ) as error:
        raise _damaged(file, error) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{file} is not a trainer state but a {type(state).__name__}.")
    return state


def export_checkpoint(source: str | Path, target: str | Path, *, overwrite: bool = False) -> None:
    """Copy a checkpoint without what only resuming needs.

    Raises:
        CheckpointError: As ``load_checkpoint``.
        UsageError: As ``save_checkpoint``.
    """
    loaded = load_checkpoint(source)
    weights = loaded.model.state_dict()
    contents = (loaded.spec, weights, loaded.schema, loaded.run_config, loaded.meta)
    save_checkpoint(target, *contents, overwrite=overwrite)


def read_meta(path: Path) -> CheckpointMeta:
    """Read and check ``meta.json``, first of all files.

    Raises:
        CheckpointError: If the directory is no checkpoint, or one of another format.
    """
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a checkpoint directory; pass one that train wrote.")
    if not (path / META).is_file():
        inner = [name for name in ("best", "last") if (path / name / META).is_file()]
        hint = f"did you mean {path / inner[0]}?" if inner else "pass a directory that train wrote."
        raise CheckpointError(f"{path} is not a checkpoint ({META} is missing); {hint}")
    data = _read_json(path / META)
    version = data.get("format_version")
    if version != FORMAT_VERSION:
        writer = data.get("layerdag_version", "unknown")
        raise CheckpointError(
            f"{path} has checkpoint format {found_value(version)}, and {FORMAT_VERSION} is needed "
            "here; it "
            f"was written by layerdag {writer}. Train it again, or sample with the version that "
            "wrote it."
        )
    try:
        names = [field.name for field in fields(CheckpointMeta)]
        require_known(data, names)
        missing = {*names} - data.keys() - {"privacy"}
        if missing:
            raise ValueError(f"'{min(missing)}' is missing")
        require_finite(data.get("privacy"), "privacy")
        return from_json(CheckpointMeta, data)
    except ValueError as error:
        raise _damaged(path / META, error) from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > MAX_JSON_BYTES:
            raise CheckpointError(f"{file} is larger than {MAX_JSON_BYTES >> 20} MiB; refused.")
        data = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{file} is missing; the checkpoint is incomplete.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, error) from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{file} must hold a JSON object, found {found_value(data)}.")
    return data


def _damaged(file: Path, error: Exception) -> CheckpointError:
    reason = (error.strerror if isinstance(error, OSError) else "") or plain_reason(error)
    return CheckpointError(f"{file} cannot be read ({reason}); copy or train the checkpoint again.")


def _write_json(file: Path, data: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def checkpoint_path(name: str) -> Path:
    """Return the folder of a checkpoint; those of ``SHIPPED`` are inside the package.

    Raises:
        ConfigError: If the package was built without it.
    """
    return pretrained_checkpoint(name) if name in SHIPPED else Path(name)


def read_schema(path: str | Path) -> GraphSchema:
    """Return the schema of a checkpoint without reading its weights.

    Raises:
        CheckpointError: If it is missing or damaged.
    """
    read_meta(Path(path))  # says best what is no checkpoint
    file = Path(path) / SCHEMA
    return _schema(_read_json(file), file)


def _schema(data: Mapping[str, Any], file: Path) -> GraphSchema:
    """Return a schema; an error names the file."""
    try:
        return GraphSchema.from_dict(data)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from None


def checkpoint_schema(checkpoint: LoadedCheckpoint) -> GraphSchema:
    """Return the schema of a checkpoint.

    Raises:
        CheckpointError: If it cannot be read, or the model was built for another one.
    """
    schema = _schema(checkpoint.schema, checkpoint.path / SCHEMA)
    if schema.sizes() != checkpoint.spec.sizes:
        raise CheckpointError(
            f"{checkpoint.path}: the schema has {schema.sizes()}, but the model was built "
            f"for {checkpoint.spec.sizes}; use a checkpoint as train wrote it."
        )
    return schema


def checkpoint_fingerprint(path: Path) -> str:
    """Return the SHA-256 of the weights file of a checkpoint."""
    return hashlib.sha256((path / WEIGHTS).read_bytes()).hexdigest()


SHIPPED = {"pretrained": "corpus", "programs": "programs", "public": "public"}
"""Folders of the checkpoints inside the package, by the names that users type."""

SAMPLED = "programs"
"""The checkpoint of ``SHIPPED`` that is sampled from where none is named."""


def pretrained_checkpoint(name: str = "pretrained") -> Path:
    """Return the folder of a checkpoint inside the package.

    Raises:
        ConfigError: If the package was built without it.
    """
    folder = Path(str(files("layerdag"))) / "pretrained" / SHIPPED[name]
    if not folder.is_dir():
        raise ConfigError("This layerdag has no pretrained checkpoint; name a checkpoint's folder.")
    return folder


BEST, LAST, LOG, RUN_FILE, PICTURES = "best", "last", "train.jsonl", "run.json", "pictures"
