"""Starting a run from the weights of another one, whose data had other words."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from layerdag.datasets import GraphDataset
from layerdag.models import ModelSpec
from layerdag.models.warm_start import Trained, carry_over, spec_from
from layerdag.sampling import checkpoint_fingerprint, checkpoint_schema, pretrained_checkpoint
from layerdag.training import (
    BEST,
    LAST,
    META,
    InitialWeights,
    LoadedCheckpoint,
    Origin,
    load_checkpoint,
)

PRETRAINED = "pretrained"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A model for a data set, and the weights that it starts from.

    Attributes:
        spec: The model.
        start: Its initial weights, and where they come from.
        report: What was taken from where, a phrase for each group of words, bins or conditions.
    """

    spec: ModelSpec
    start: InitialWeights
    report: tuple[str, ...]

    def __str__(self) -> str:
        """Return one sentence for the user."""
        origin = self.start.origin
        return f"starts from {origin.name} (step {origin.step:,}): {'; '.join(self.report)}"


def warm_start(
    init: str | Path,
    data: GraphDataset,
    model: str | None = None,
    options: Mapping[str, Any] = _NOTHING,
    *,
    seed: int = 0,
) -> WarmStart:
    """Carry the weights of a checkpoint over to a data set with other words, bins and conditions.

    Args:
        init: Folder of a checkpoint or of a run (then its best one); "pretrained" is the checkpoint
            inside the package.
        data: What will be trained on.
        model: The model that is asked for; None takes the checkpoint's.
        options: The model's settings that are asked for; the checkpoint's are taken for the rest.
        seed: Of the weights that nothing can be taken for.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ConfigError: If what is asked for contradicts the checkpoint's model.
    """
    checkpoint, origin = checkpoint_and_origin(init)
    old = Trained(checkpoint.model, checkpoint.spec, checkpoint_schema(checkpoint))
    spec = spec_from(old, data, model, options)
    carried = carry_over(old, spec, data.schema, seed)
    start = WarmStart(spec, InitialWeights(carried.weights, origin), carried.report)
    logging.getLogger("layerdag").info("%s", start)
    return start


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
    """Return the name of a checkpoint's folder, or of its run's, without a path."""
    folder = folder.resolve()
    return folder.parent.name if folder.name in (BEST, LAST) else folder.name
