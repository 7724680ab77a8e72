"""Do samples and weights give away the graphs that a generator learned from?"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from layerdag._runtime import stage
from layerdag.api.auditing import (
    Audit,
    Graphs,
    Samples as SampleSource,
    WhiteBox,
    WordSearch,
    audit_of,
    read_sets,
    search_words,
)
from layerdag.api.auditing.shadows import ShadowReport, ShadowSettings
from layerdag.datasets import (
    GraphDataset,
    GraphLike,
    SplitFingerprint,
    encoded,
    load_dataset,
    require_same_split,
)
from layerdag.errors import DataError, UsageError
from layerdag.evaluation.privacy import Attack
from layerdag.sampling import checkpoint_schema
from layerdag.surrogates import read_manifest, stream_samples
from layerdag.training import LoadedCheckpoint, load_checkpoint

Samples = Sequence[GraphLike] | str | Path

Tell = Callable[[str], None]
_LOG = logging.getLogger("layerdag")


def audit(  # noqa: PLR0913 - which graphs are which, and how weights are attacked
    samples: Samples | None = None,
    data: GraphDataset | str | Path | None = None,
    checkpoint: LoadedCheckpoint | str | Path | None = None,
    *,
    train: Graphs | None = None,
    holdout: Graphs | None = None,
    synthetic: Graphs | None = None,
    shadows: ShadowSettings | int | None = None,
    tell: Tell = _LOG.info,
) -> Audit:
    """Compare samples with training and held-out graphs, and attack.

    ``audit(samples, data)`` takes a data set with its split; ``audit(train=..., holdout=...,
    synthetic=...)`` three folders, or graphs in memory, of which you say what was trained on.

    Args:
        samples: What ``sample`` returned, or a folder that ``layerdag sample`` wrote. Its files are
            searched for words of ``data`` if both are folders.
        data: The data set that the generator learned from, split as it was then.
        checkpoint: What was sampled from, for attacks on weights and schema; None leaves them out.
        train: Graphs that the generator learned from, instead of ``data``.
        holdout: Graphs of the same kind that it never saw.
        synthetic: Samples in any format; every file of the folder is searched for private words.
        shadows: Shadow models for the attack by likelihood ratio, their number (at least 16) or all
            settings; None trains none. They need ``checkpoint``.
        tell: Takes a line on each shadow model.

    Raises:
        UsageError: If samples or checkpoint are known to come from another split of the data, or
            the arguments are neither of both sets.
        DataError: If a file is missing or damaged.
    """
    if shadows is not None and checkpoint is None:
        raise UsageError("Shadow models are for an attack on weights; give a checkpoint, too.")
    if isinstance(shadows, int):
        shadows = ShadowSettings(count=shadows)
    attack = WhiteBox(shadows, tell)
    if train is not None or holdout is not None:
        return _audit_of_folders(samples, data, checkpoint, (train, holdout, synthetic), attack)
    samples = synthetic if samples is None else samples
    if samples is None or data is None:
        raise UsageError(
            "An audit needs samples and a data set, or train, holdout and synthetic graphs."
        )
    folder = data if isinstance(data, str | Path) else None
    if not isinstance(data, GraphDataset):
        data = load_dataset(data)
    words = None
    if isinstance(samples, str | Path):
        learned = SplitFingerprint.from_dict(read_manifest(samples).get("split"))
        _require_split(learned, data, str(samples))
        made: SampleSource = stream_samples(samples, data.schema)
        words = None if folder is None else _searched(samples, folder)
    else:
        made = encoded(samples, data.schema)
    if checkpoint is None:
        return replace(audit_of(data, made), words=words)
    if not isinstance(checkpoint, LoadedCheckpoint):
        checkpoint = load_checkpoint(checkpoint)
    _require_split(checkpoint.meta.split, data, str(checkpoint.path))
    weights, report = attack.on(checkpoint, data)
    return replace(audit_of(data, made, weights), words=words, shadows=report)


def _searched(samples: str | Path, folder: str | Path) -> WordSearch | None:
    """Search samples for the words of a data set; None if it has no traces and no flow graphs."""
    try:
        return search_words(samples, folder) if Path(folder).is_dir() else None
    except DataError:
        return None


def _audit_of_folders(
    samples: Samples | None,
    data: object,
    checkpoint: LoadedCheckpoint | str | Path | None,
    sets: tuple[Graphs | None, Graphs | None, Graphs | None],
    attack: WhiteBox,
) -> Audit:
    """Return the audit of training, held-out and synthetic graphs."""
    train, holdout, synthetic = sets
    if data is not None or samples is not None or None in (train, holdout, synthetic):
        raise UsageError(
            "An audit of folders needs all of train, holdout and synthetic, and neither samples "
            "nor data."
        )
    assert train is not None and holdout is not None and synthetic is not None  # noqa: PT018
    with stage("reading three sets of graphs"):
        found = read_sets(train, holdout, synthetic)
    weights: tuple[Attack, ...] = ()
    report: ShadowReport | None = None
    if checkpoint is not None:
        loaded = (
            checkpoint if isinstance(checkpoint, LoadedCheckpoint) else load_checkpoint(checkpoint)
        )
        weights, report = attack.on(loaded, found.in_codes_of(checkpoint_schema(loaded)))
    done = replace(audit_of(found.data, found.made, weights), shadows=report)
    if not isinstance(synthetic, str | Path):
        return done
    return replace(done, words=search_words(synthetic, found.private))


def _require_split(learned: SplitFingerprint | None, data: GraphDataset, model: str) -> None:
    """Raise UsageError if a model is known to have learned from another split."""
    if learned is not None:
        require_same_split(learned, data.split, model=model, data=data.name)
