"""A run that starts from the weights of a checkpoint whose codes mean the same."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import ConfigError
from layerdag.models.spec import ModelSpec
from layerdag.runtime.settings import flattened, grouped
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import (
    BEST,
    LAST,
    META,
    InitialWeights,
    LoadedCheckpoint,
    Origin,
    checkpoint_fingerprint,
    checkpoint_schema,
    load_checkpoint,
    pretrained_checkpoint,
)

PRETRAINED = "pretrained"

# Settings of a model that may differ from the old one's: no weight means another thing by them.
TUNABLE = frozenset(
    {
        *("encoder.dropout", "encoder.token_dropout", "conditioning.dropout", "posterior.dropout"),
        *("constraints.out_degree", "constraints.neighbors", "budget", "sampling_precision"),
    }
)
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_CODES = {
    "attributes": "attribute",
    "edge_types": "edge type",
    "numeric_conditions": "condition",
    "category_conditions": "condition",
}


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A model for a data set, and the weights that it starts from."""

    spec: ModelSpec  # the model
    start: InitialWeights  # its initial weights, and where they come from

    def __str__(self) -> str:
        """Return one sentence for the user."""
        origin = self.start.origin
        return f"starts from {origin.name} (step {origin.step:,})"


def warm_start(
    init: str | Path,
    data: GraphDataset,
    model: str | None = None,
    options: Mapping[str, Any] = _NOTHING,
) -> WarmStart:
    """Return model and weights of a checkpoint, for a data set of the same schema.

    ``init`` is the folder of a checkpoint or of a run (then its best one); "pretrained" is the
    checkpoint inside the package. What is not asked for by ``model`` and ``options`` is the
    checkpoint's.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ConfigError: If the schemas differ, or what is asked for contradicts the checkpoint's model.
    """
    checkpoint, origin = checkpoint_and_origin(init)
    differs = first_difference(data.schema, checkpoint_schema(checkpoint))
    if differs:
        raise ConfigError(
            f"{data.name}: {differs} is not that of the data that '{origin.name}' was trained on, "
            "and its weights fit no other words, bins and scales; train without init, or load the "
            "graphs with layerdag.datasets.encoding.load_with_schema."
        )
    spec = checkpoint.spec
    if model not in (None, spec.name):
        raise ConfigError(
            f"A model '{model}' cannot start from the weights of a model '{spec.name}'; leave "
            f"model={model} out, or start from a checkpoint of such a model."
        )
    chosen = {key: value for key, value in flattened(options).items() if value is not None}
    asked = replace(spec, arguments=grouped({**flattened(spec.arguments), **chosen}))
    wanted = flattened(asdict(asked.config))
    for key, value in flattened(asdict(spec.config)).items():
        if wanted[key] != value and key not in TUNABLE:
            raise ConfigError(
                f"model.{key}={wanted[key]} contradicts the weights to start from, which are of a "
                f"model with {key}={value}; leave it out, or train without init."
            )
    start = WarmStart(asked, InitialWeights(checkpoint.model.state_dict(), origin))
    logging.getLogger("layerdag").info("%s", start)
    return start


def first_difference(here: GraphSchema, there: GraphSchema) -> str:
    """Return what first means another thing in two schemas, such as "attribute 'op'"; else ""."""
    if here.kind != there.kind:
        return f"kind '{here.kind}'"
    for part, word in _CODES.items():
        for ours, theirs in zip_longest(getattr(here, part), getattr(there, part)):
            if ours != theirs:
                named = theirs if ours is None else ours
                return f"{word} '{getattr(named, 'name', named)}'"
    return ""


def checkpoint_and_origin(init: str | Path) -> tuple[LoadedCheckpoint, Origin]:
    """Return the checkpoint that ``init`` names, and what is recorded of it.

    Raises:
        CheckpointError: If it cannot be read.
    """
    folder = checkpoint_folder(init)
    checkpoint = load_checkpoint(folder)
    origin = Origin(
        name=PRETRAINED if str(init) == PRETRAINED else _name_of(folder),
        fingerprint=checkpoint_fingerprint(folder),
        step=checkpoint.meta.step,
        data_fingerprint=checkpoint.meta.data_fingerprint,
    )
    return checkpoint, origin


def checkpoint_folder(init: str | Path) -> Path:
    """Return the folder of a checkpoint, of a run that of its best one."""
    if str(init) == PRETRAINED:
        return pretrained_checkpoint()
    folder = Path(init)
    inside = not (folder / META).is_file() and (folder / BEST / META).is_file()
    return folder / BEST if inside else folder


def _name_of(folder: Path) -> str:
    folder = folder.resolve()
    return folder.parent.name if folder.name in (BEST, LAST) else folder.name
