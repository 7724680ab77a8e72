"""The files of a packed data set, and the header that says what is in them.

Every array is a ``.npy`` file without pickled objects; graphs lie end to end in it, those of
training first, then those of validation and of test. Nodes are in layer order and edges by target,
as models take them. Edges count nodes from the first one of their split.

Letters: B graphs, N nodes, A attributes, E edges, C numeric and M other conditions.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from layerdag._runtime import FolderKind, read_parsed, strangers, write_text
from layerdag._version import __version__
from layerdag.datasets import SPLITS, Split
from layerdag.errors import DataError

HEADER = "packed.json"
VERSION = 1
NAMES = "names.json"
ARRAYS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "x": (("int16", "int32"), 2),
    "u": (("float32",), 2),
    "layer": (("int32",), 1),
    "edges": (("int32", "int64"), 2),
    "edge_types": (("int16",), 1),
    "node_ptr": (("int64",), 1),
    "edge_ptr": (("int64",), 1),
    "numbers": (("float64",), 2),
    "words": (("int32",), 2),
}
"""Types and number of axes of each array, by the name of its file.

x (N, A) codes, u (N, A) positions, layer (N,), edges (E, 2) source and target, edge_types (E,),
node_ptr and edge_ptr (B+1,), numbers (B, C) conditions with NaN for unknown, words (B, M)
conditions with -1 for unknown.
"""
FILES = (HEADER, NAMES, *(f"{name}.npy" for name in ARRAYS))


@dataclass(frozen=True)
class PackedHeader:
    """What the arrays mean.

    Attributes:
        name: Of the data set.
        schema: The schema as ``GraphSchema.to_dict`` writes it.
        splits: Number of graphs of each split.
        settings: How the folder was read, as plain data.
        numbers: Names of the numeric conditions, in the order of their columns.
        words: Words of the other conditions, by name in the order of their columns.
        left_out: Graphs that could not be used, with the reason.
        renamed: New word -> old word, by the attribute or condition.
        learned_from: Number of training graphs that the schema was learned from.
        sha256: Of each other file.
        version: Of the format.
        layerdag_version: What wrote it.
    """

    name: str
    schema: Mapping[str, Any]
    splits: Mapping[Split, int]
    settings: Mapping[str, Any]
    numbers: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    left_out: tuple[str, ...]
    renamed: Mapping[str, Mapping[str, str]]
    learned_from: int
    sha256: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION
    layerdag_version: str = __version__

    def write(self, folder: Path) -> None:
        """Write the header of a folder whose other files are complete."""
        sha256 = {name: digest_of(folder / name) for name in FILES if name != HEADER}
        write_text(folder / HEADER, json.dumps({**asdict(self), "sha256": sha256}, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "PackedHeader":
        """Read the header of a folder.

        Raises:
            DataError: If it is damaged, or of another version.
        """
        path = folder / HEADER
        try:
            data = json.loads(read_parsed(path))
            version = data["version"]
            if version == VERSION:
                return cls(**_checked({one.name: data[one.name] for one in fields(cls)}))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}: is no header of a packed data set ({error!r:.200}); pack the data again."
            ) from None
        raise DataError(
            f"{path}: is of version {version!r:.20}, and this layerdag reads version {VERSION}; "
            "pack the data again."
        )


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a header with their types. Raises TypeError or ValueError."""
    splits = {split: data["splits"][split] for split in SPLITS}
    counts = (*splits.values(), data["learned_from"])
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("numbers of graphs are whole numbers from 0 on")
    words = {str(name): tuple(map(str, known)) for name, known in data["words"].items()}
    renamed = {
        str(name): {str(new): str(old) for new, old in table.items()}
        for name, table in data["renamed"].items()
    }
    return {
        **data,
        "name": str(data["name"]),
        "splits": splits,
        "settings": dict(data["settings"]),
        "numbers": tuple(map(str, data["numbers"])),
        "words": words,
        "left_out": tuple(map(str, data["left_out"])),
        "renamed": renamed,
        "sha256": {str(name): str(word) for name, word in data["sha256"].items()},
    }


def is_packed(folder: str | Path) -> bool:
    """Return whether a folder is a packed data set."""
    return (Path(folder) / HEADER).is_file()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_array(folder: Path, name: str) -> np.ndarray:
    """Return one array, its rows read when they are needed.

    Raises:
        DataError: If the file is missing or holds no such array.
    """
    path = folder / f"{name}.npy"
    types, axes = ARRAYS[name]
    try:
        # Copied on writing: torch takes no arrays that cannot be written to.
        found = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, TypeError) as error:
        raise DataError(f"{path}: cannot be read ({error!r:.200}); pack the data again.") from None
    if found.dtype.name not in types or found.ndim != axes:
        raise DataError(
            f"{path}: holds {found.dtype} of {found.ndim} axes, and {types[0]} of {axes} are "
            "needed; pack the data again."
        )
    return found


def doubt_packed(folder: Path) -> str:
    """Return why a folder is not provably a packed data set, or ""."""
    strange = strangers(folder, FILES.__contains__)
    if strange:
        return strange
    return "" if is_packed(folder) else f"has no {HEADER}"


PACKED = FolderKind("a packed data set", doubt_packed)
