"""The folder of a surrogate, and its card.

Surrogates as directories: ``surrogate.json``, ``weights.safetensors`` and a card; no pickle.

Each further target has a folder inside. Where it is another output of the same network (format 2),
that folder has no weights of its own.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays, save as save_arrays

from layerdag.errors import CheckpointError, UsageError
from layerdag.runtime.files import FolderKind, atomic_folder, unexpected_files
from layerdag.runtime.json_shape import parse_json, plain_reason, require_known, require_shape
from layerdag.runtime.reading import read_parsed, read_whole
from layerdag.simulator.learned import OperatorTrees
from layerdag.surrogates.families.base import SurrogateModel
from layerdag.surrogates.families.registry import FAMILIES, rebuild, rebuild_output
from layerdag.version import __version__

_ABOUT = {
    "boosting": "Boosted trees on counts and shapes of the graph (Friedman, 2001).",
    "message_passing": (
        "Messages along the edges and against them (GINE; Hu et al., ICLR 2020), pooled to one "
        "number."
    ),
    "stacked": (
        "A stacked ensemble of boosted trees and message passing, weighed by graphs that their "
        "fits did not see (Wolpert, 1992); intervals are wider where it errs."
    ),
}


def card(
    family: str, notes: Mapping[str, Any], others: Sequence[str] = (), where: str = "a folder each"
) -> str:
    """Return the card, Markdown."""
    excluded = ", ".join(map(str, notes.get("excluded", ()))) or "none"
    lines = [
        f"# Surrogate of {notes.get('target', 'label')}",
        "",
        _ABOUT.get(family, family),
        "",
        "| | |",
        "|---|---|",
        f"| family | `{family}` |",
        f"| data set | {notes.get('data', 'unknown')}, {notes.get('train', '?')} training graphs |",
        f"| attributes that it does not see | {excluded} |",
        *([f"| further targets | {', '.join(others)}, {where} |"] if others else []),
        f"| seed | {notes.get('seed', '?')} |",
        f"| written by | layerdag {__version__} |",
        "",
        *_scores(notes.get("evaluation")),
        *_limits(notes),
        "## Use",
        "",
        "`layerdag surrogate predict THIS_FOLDER TRACE`, or in Python",
        "`layerdag.Surrogate.load(THIS_FOLDER).predict_intervals([TRACE])`.",
    ]
    return "\n".join(lines) + "\n"


def _scores(found: object) -> list[str]:
    """Return the table of scores on the test part, nothing where it was not scored."""
    if not isinstance(found, Mapping):
        return []
    lines = [
        f"## On {found['graphs']} test graphs that no fit saw",
        "",
        "| score | value | 95 % interval |",
        "|---|---|---|",
    ]
    for name, score in found["scores"].items():
        around = score["interval"]
        shown = f"{around['low']:.3g} to {around['high']:.3g}" if around else ""
        value = "not defined" if score["value"] is None else f"{score['value']:.3g}"
        lines.append(f"| {name} | {value} | {shown} |")
    for one in found["coverage"]:
        around = one["interval"]
        lines.append(
            f"| intervals of {one['level']:.0%} that hold the target | {one['covered']:.0%} | "
            f"{around['low']:.0%} to {around['high']:.0%} |"
        )
    few = found.get("verdict")
    return [*lines, *(["", f"{few}."] if few else []), ""]


def _limits(notes: Mapping[str, Any]) -> list[str]:
    seen = notes.get("seen", {})
    calibrated = notes.get("calibration", {}).get("errors", ())
    intervals = (
        f"Intervals come from {len(calibrated)} validation graphs and hold on average over graphs "
        "like these."
        if calibrated
        else "It gives no intervals: there were too few validation graphs."
    )
    return [
        "## Limits",
        "",
        f"- It knows graphs of {seen.get('fewest', '?')} to {seen.get('most', '?')} nodes, with "
        "the operators and on the machine of its data set; elsewhere it is a guess.",
        "- A prediction reaches at most half a standard deviation beyond the targets of the fit.",
        f"- {intervals}",
        "",
    ]


FORMAT, SHARED_FORMAT = 1, 2
FACTS, WEIGHTS, CARD = "surrogate.json", "weights.safetensors", "README.md"
_FURTHER = "target-{}"
_IS_FURTHER = re.compile(r"target-\d+").fullmatch


@dataclass(frozen=True, eq=False)
class SavedSurrogate:
    """The parts of a file.

    Attributes:
        notes: Further JSON-serializable facts (schema, data set, scores) kept beside it.
        card: What a reader should know, Markdown; "" for none.
    """

    model: SurrogateModel | OperatorTrees
    notes: Mapping[str, object]
    card: str = ""

    def write(self, folder: Path) -> None:
        """Write the files into a folder."""
        self.write_facts(folder)
        arrays = {n: np.ascontiguousarray(value) for n, value in self.model.arrays().items()}
        (folder / WEIGHTS).write_bytes(save_arrays(arrays))

    def write_facts(self, folder: Path) -> None:
        """Write the files but for the weights into a folder."""
        config = dict(self.model.config())
        facts = {
            # A version that knows no shared networks must not take one for damaged.
            "format": SHARED_FORMAT if "outputs" in config else FORMAT,
            "family": self.model.family,
            "config": config,
            "notes": dict(self.notes),
        }
        (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n")
        if self.card:
            (folder / CARD).write_text(self.card)


def save_surrogate(
    surrogate: SurrogateModel | OperatorTrees,
    folder: str | Path,
    notes: Mapping[str, object] | None = None,
    *,
    overwrite: bool = False,
    card: str = "",
    further: Sequence[SavedSurrogate] = (),
) -> None:
    """Write a surrogate to a directory, whole or not at all.

    Args:
        surrogate: What to save.
        folder: Directory to make.
        notes: Further JSON-serializable facts (schema, data set, scores) kept beside it.
        overwrite: Whether a surrogate that stands there may be replaced; nothing else ever is.
        card: What a reader should know, Markdown; "" writes none.
        further: Surrogates of further targets, a folder each inside, without weights where these
            are the very same.

    Raises:
        UsageError: If something stands there that may not be replaced, or another process is
            writing there.
    """
    with atomic_folder(folder, SURROGATE, overwrite=overwrite) as draft:
        SavedSurrogate(surrogate, notes or {}, card).write(draft)
        for index, one in enumerate(further):
            inside = further_folder(draft, index)
            inside.mkdir()
            if _same_arrays(one.model, surrogate):
                one.write_facts(inside)
            else:
                one.write(inside)


def _same_arrays(
    one: SurrogateModel | OperatorTrees, other: SurrogateModel | OperatorTrees
) -> bool:
    if not isinstance(one, SurrogateModel) or not isinstance(other, SurrogateModel):
        return False
    return one.shares_arrays(other)


def further_folder(folder: Path, index: int) -> Path:
    """Return where the surrogate of a further target lies."""
    return folder / _FURTHER.format(index + 2)


def _doubt_surrogate(folder: Path) -> str:
    own = (FACTS, WEIGHTS, CARD)
    strange = unexpected_files(folder, lambda name: name in own or bool(_IS_FURTHER(name)))
    for path in [] if strange else sorted(folder.iterdir()):
        if _IS_FURTHER(path.name):
            strange = strange or (
                unexpected_files(path, own.__contains__)
                if path.is_dir()
                else f"holds the file '{path.name}'"
            )
    if strange:
        return strange
    try:
        facts = json.loads((folder / FACTS).read_text())
    except (OSError, ValueError, RecursionError):
        return f"has no readable {FACTS}"
    proved = isinstance(facts, dict) and "family" in facts and isinstance(facts.get("format"), int)
    return "" if proved else f"has a {FACTS} that is not of a surrogate"


SURROGATE = FolderKind("a surrogate", _doubt_surrogate)


def load_notes(folder: str | Path) -> dict[str, Any]:
    """Return the notes that were saved with a surrogate. Raises as ``load_surrogate``."""
    notes = _facts(Path(folder)).get("notes")
    return notes if isinstance(notes, dict) else {}


def load_surrogate(folder: str | Path) -> SurrogateModel:
    """Read a surrogate. The directory is not trusted: only plain numbers are taken from it.

    Raises:
        CheckpointError: If a file is missing, damaged, or of another format; names it.
    """
    folder = Path(folder)
    facts = _facts(folder)
    weights = folder / WEIGHTS
    family = facts.get("family")
    if family == "operators":
        raise CheckpointError(
            f"{folder}: predicts the times of single operators; use it with 'layerdag simulate "
            f"--compute surrogate:{folder}'."
        )
    if family not in FAMILIES:
        raise CheckpointError(
            f"{folder / 'surrogate.json'}: the family is {family!r}; known are "
            f"{', '.join(FAMILIES)}. Use the version of layerdag that wrote it."
        )
    if facts["format"] == SHARED_FORMAT and not weights.exists():
        raise CheckpointError(
            f"{folder}: is one of several targets that share a network, whose weights lie in the "
            f"folder above; load {folder.parent}."
        )
    with _damage_told(folder):
        arrays = load_arrays(read_whole(weights, error=CheckpointError))
        return rebuild(family, facts["config"], arrays)


def load_further(folder: str | Path, index: int, first: SurrogateModel) -> SurrogateModel:
    """Read the surrogate of a further target, as ``load_surrogate`` reads the first one."""
    inside = further_folder(Path(folder), index)
    if (inside / WEIGHTS).exists() or _facts(inside)["format"] == FORMAT:
        return load_surrogate(inside)
    with _damage_told(inside):
        return rebuild_output(first, _facts(inside)["config"])


@contextmanager
def _damage_told(folder: Path) -> Iterator[None]:
    try:
        yield
    except (
        *(SafetensorError, KeyError, TypeError, ValueError, IndexError, RuntimeError),
        *(AttributeError, OverflowError, UsageError),
    ) as error:
        raise CheckpointError(
            f"{folder}: the surrogate is damaged ({plain_reason(error)}); fit it again."
        ) from None


def _facts(folder: Path) -> dict[str, Any]:
    path = folder / "surrogate.json"
    if not path.is_file():
        raise CheckpointError(
            f"{path}: there is no such file; give the directory of a fitted surrogate."
        )
    try:
        facts = parse_json(read_parsed(path, CheckpointError))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: is no JSON ({plain_reason(error)}); fit the surrogate again."
        ) from None
    is_facts = isinstance(facts, dict) and type(facts.get("format")) is int
    if not is_facts or facts["format"] not in (FORMAT, SHARED_FORMAT):
        raise CheckpointError(
            f"{path}: is not of surrogate format {FORMAT} or {SHARED_FORMAT}; use the version of "
            "layerdag that wrote it, or fit it again."
        )
    try:
        require_shape(facts, {"family": str, "config": dict})
        require_known(facts, ("format", "family", "config", "notes"))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}; fit the surrogate again.") from None
    return dict(facts)
