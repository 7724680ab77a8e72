"""Which words of a user's graphs may enter a schema, and so a checkpoint and its samples.

Operators of public frameworks, names of common models, strategies and devices are public. Other
words (a team's kernels, a project's code name) are renamed: ``kind-0``, ``family-1``, ... in
alphabetical order, the same in every part of the data set.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources

from layerdag.codec import AttributedGraph
from layerdag.errors import ConfigError
from layerdag.traces.anonymize import public_operators

ALL = "all"
EDGE = "edge"

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s_.\-]+")

Renamed = Mapping[str, Mapping[str, str]]
"""New word -> old word, by the attribute or condition that holds it."""


def publish(
    graphs: Sequence[AttributedGraph],
    extra: Sequence[str] = (),
    *,
    checked: Sequence[str] = (),
) -> tuple[list[AttributedGraph], Renamed]:
    """Return the graphs with words that are not public renamed, and which ones were.

    Names of attributes and conditions stay.

    Args:
        graphs: Of all parts of a data set.
        extra: Further words that are public; "all" for every word.
        checked: Attributes whose words are known to be public.

    Raises:
        ConfigError: If ``extra`` is another word.
    """
    found: dict[str, set[str]] = {}
    for graph in graphs if extra != ALL else ():
        for name, column in words_of(graph).items():
            found.setdefault(name, set()).update(column)
    new = new_words(found, extra, checked=checked)
    renamed = {name: {to: old for old, to in table.items()} for name, table in new.items() if table}
    return [with_words(graph, new) for graph in graphs] if extra != ALL else list(graphs), renamed


def new_words(
    found: Mapping[str, set[str]], extra: Sequence[str] = (), *, checked: Sequence[str] = ()
) -> Mapping[str, Mapping[str, str]]:
    """Return old word -> new word for all that are not public, by what holds them.

    Args:
        found: All words of a data set by the attribute or condition that holds them.
        extra: Further words that are public; "all" for every word.
        checked: Attributes whose words are known to be public.

    Raises:
        ConfigError: If ``extra`` is another word.
    """
    if extra == ALL:
        return {}
    if isinstance(extra, str):
        raise ConfigError(f"'public_words' must be a list of words, or {ALL}; found {extra!r}.")
    allowed = {_normal(word) for word in extra}
    return {
        name: _new_words(name, sorted(w for w in known if not _is_public(w, allowed)), known)
        for name, known in found.items()
        if name not in checked
    }


def is_public(word: str) -> bool:
    """Return whether a word is a number, a single character or on the list of public words."""
    return len(word) <= 1 or bool(_NUMBER.fullmatch(word)) or _normal(word) in _public_words()


def _is_public(word: str, allowed: set[str]) -> bool:
    return is_public(word) or _normal(word) in allowed


def words_of(graph: AttributedGraph) -> dict[str, set[str]]:
    """Return the words of a graph by what holds them."""
    columns = {name: set(column) for name, column in graph.categories.items()}
    columns[EDGE] = columns.get(EDGE, set()) | set(graph.edge_type_names)
    for name, value in graph.conditions.items():
        if isinstance(value, str):
            columns.setdefault(name, set()).add(value)
    return columns


def _new_words(name: str, private: list[str], known: set[str]) -> dict[str, str]:
    """Return a new word for each private one, none of which is in use."""
    free = (f"{name}-{i}" for i in range(len(private) + len(known)))
    unused = [word for word in free if word not in known]
    return dict(zip(private, unused, strict=False))


def with_words(graph: AttributedGraph, new: Mapping[str, Mapping[str, str]]) -> AttributedGraph:
    """Return a graph with new words."""
    edge = new.get(EDGE, {})
    return replace(
        graph,
        categories={
            name: [new[name].get(word, word) for word in column] if new.get(name) else column
            for name, column in graph.categories.items()
        },
        edge_type_names=tuple(edge.get(word, word) for word in graph.edge_type_names),
        conditions={
            name: new.get(name, {}).get(value, value) if isinstance(value, str) else value
            for name, value in graph.conditions.items()
        },
    )


def _normal(word: str) -> str:
    """Return a word without case and separators, and without namespace and overload."""
    bare = word.rpartition("::")[2] if "::" in word else word
    return _SEPARATORS.sub("", bare).lower()


@cache
def _public_words() -> frozenset[str]:
    text = resources.files("layerdag.datasets.sources").joinpath("public_words.txt")
    lines = text.read_text("utf-8").splitlines()
    listed = [word for line in lines if not line.startswith("#") for word in line.split()]
    return frozenset(_normal(word) for word in (*listed, *public_operators()))
