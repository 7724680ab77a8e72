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
from itertools import count

from layerdag.codec.vocabulary import public_operators
from layerdag.errors import ConfigError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats import program_json
from layerdag.kinds.program import EDGE

ALL = "all"

_SEPARATORS = re.compile(r"[\s_.\-]+")

Renamed = Mapping[str, Mapping[str, str]]
"""New word -> old word, by the attribute or condition that holds it."""


def rename_private_words(
    graphs: Sequence[AttributedGraph],
    extra: Sequence[str] = (),
    *,
    checked: Sequence[str] = (),
) -> tuple[list[AttributedGraph], Renamed]:
    """Return the graphs with words that are not public renamed, and which ones were.

    Names of attributes and conditions stay, and so do words of ``extra`` ("all" for every word) and
    those of the attributes ``checked``, which are known to be public. Raises ConfigError if
    ``extra`` is another word.
    """
    if extra == ALL:
        return list(graphs), {}
    if isinstance(extra, str):
        raise ConfigError(f"'public_words' must be a list of words, or {ALL}; found {extra!r}.")
    found: dict[str, set[str]] = {}
    for graph in graphs:
        for name, column in categories_of(graph).items():
            found.setdefault(name, set()).update(column)
    allowed = {_normal(word) for word in extra}
    new: dict[str, Mapping[str, str]] = {}
    for name, known in found.items():
        if name not in checked:
            private = sorted(w for w in known if not is_public(w) and _normal(w) not in allowed)
            unused = (word for i in count() if (word := f"{name}-{i}") not in known)
            new[name] = dict(zip(private, unused, strict=False))
    if program_json.SIZES in checked:
        new[program_json.SIZES] = program_json.rounded_numbers(found[program_json.SIZES])
    renamed = {name: {to: old for old, to in table.items()} for name, table in new.items() if table}
    return [rename_categories(graph, new) for graph in graphs], renamed


def is_public(word: str) -> bool:
    """Return whether a word is empty, a single letter or on the list of public words.

    The whole word counts, with its namespace or path. Numbers are no public words: they may be
    those of a customer or a project.
    """
    return word == "" or (len(word) == 1 and word.isalpha()) or _normal(word) in _public_words()


def categories_of(graph: AttributedGraph) -> dict[str, set[str]]:
    """Return the words of a graph by what holds them."""
    columns = {name: set(column) for name, column in graph.categories.items()}
    columns[EDGE] = columns.get(EDGE, set()) | set(graph.edge_type_names)
    for name, value in graph.conditions.items():
        if isinstance(value, str):
            columns.setdefault(name, set()).add(value)
    return columns


def rename_categories(
    graph: AttributedGraph, new: Mapping[str, Mapping[str, str]]
) -> AttributedGraph:
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
    return _SEPARATORS.sub("", word).lower()


@cache
def _public_words() -> frozenset[str]:
    text = resources.files("layerdag.datasets").joinpath("public_words.txt")
    lines = text.read_text("utf-8").splitlines()
    listed = [word for line in lines if not line.startswith("#") for word in line.split()]
    # Operators count with their namespace and without: "aten::mm" and "mm".
    bare = (name.rpartition("::")[2] for name in public_operators())
    return frozenset(map(_normal, (*listed, *public_operators(), *bare)))
