"""From a folder of graphs to a packed data set, with bounded memory."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from layerdag._runtime import atomic_folder, write_text
from layerdag.codec import AttributedGraph
from layerdag.datasets import SPLITS, FolderConfig, GraphDataset, Split
from layerdag.datasets.files import Labels
from layerdag.datasets.sources import (
    as_job,
    dataset_of,
    folder_graphs,
    folder_labels,
    kind_of,
    new_words,
    sizes_of_parts,
    with_attributes,
    with_words,
)
from layerdag.datasets.sources.packed._format import NAMES, PACKED, PackedHeader
from layerdag.datasets.sources.packed._read import plain_settings
from layerdag.datasets.sources.packed._spool import Spool
from layerdag.datasets.sources.packed._survey import Survey
from layerdag.errors import DataError, UsageError
from layerdag.graph import DAG, Condition

SCHEMA_NODES = 2_000_000
"""Nodes of the graphs that the schema is learned from, together, at most."""
_GRAPHS_AT_ONCE = 256

Ready = tuple[Split, int, str, str, DAG]
"""Split of a graph, its place there, name, content hash and codes."""


def pack_folder(
    config: FolderConfig,
    out: str | Path,
    *,
    schema_nodes: int = SCHEMA_NODES,
    overwrite: bool = False,
) -> PackedHeader:
    """Write a folder of traces or graphs as flat arrays, which ``load_folder`` reads.

    The folder is read once if all graphs together have at most ``schema_nodes`` nodes; the result
    is then exactly the data set of ``load_folder``. Else it is read twice, and bins, scales and
    costs are those of ``schema_nodes`` nodes of training graphs drawn with the seed of the split;
    words are those of all training graphs.

    Args:
        config: The folder and how it is read.
        out: Folder to write.
        schema_nodes: Nodes of the graphs that are held in memory to learn the schema from.
        overwrite: Whether an older packed data set may be replaced; nothing else ever is.

    Returns:
        What was written.

    Raises:
        DataError: As ``load_folder``.
        UsageError: If ``out`` may not be replaced, or is the folder itself.
        OSError: If the disk is full.
    """
    if Path(out).resolve() == config.folder.resolve():
        raise UsageError(f"{out}: is the folder that is read; name another one to write.")
    with atomic_folder(out, PACKED, overwrite=overwrite) as draft:
        known, left_out = folder_labels(config), list[str]()
        survey = Survey(config.seed, known.splits, schema_nodes)
        for graph in folder_graphs(config, known, left_out):
            survey.add(graph)
        if survey.is_whole:
            data = dataset_of(config, survey.kept(), known)
            ready, learned_from = _of_data(data), len(data.graphs["train"])
        else:
            plan = _Plan.of(config, survey)
            data, learned_from = plan.learned(config, survey)
            ready = plan.ready(config, known, data, left_out)
        left_out.extend(data.left_out)
        header = PackedHeader(
            name=config.folder.name,
            schema=data.schema.to_dict(),
            splits={},
            settings=plain_settings(config),
            numbers=(),
            words={},
            left_out=(),
            renamed=data.renamed,
            learned_from=learned_from,
        )
        return _written(draft, ready, len(data.schema.attributes), header, left_out)


def _of_data(data: GraphDataset) -> Iterator[Ready]:
    """Yield the graphs of a data set in memory."""
    for split in SPLITS:
        lines = zip(data.names[split], data.contents[split], data.graphs[split], strict=True)
        for place, (name, content, dag) in enumerate(lines):
            yield split, place, name, content, dag


@dataclass(frozen=True)
class _Plan:
    """How graphs are prepared one by one as all of them together would be.

    Attributes:
        kind: "trace" or "flow".
        texts: Attributes that are words.
        numbers: Attributes that are numbers.
        edge_types: Names of edge types.
        renamed: Old word -> new word by what holds it.
        words: Words of training graphs, by attribute.
        places: Split of each graph and its place there, by name.
    """

    kind: str
    texts: list[str]
    numbers: list[str]
    edge_types: tuple[str, ...]
    renamed: Mapping[str, Mapping[str, str]]
    words: Mapping[str, tuple[str, ...]]
    places: Mapping[str, tuple[Split, int]]

    @classmethod
    def of(cls, config: FolderConfig, survey: Survey) -> "_Plan":
        """Return the plan after a first pass."""
        places: dict[str, tuple[Split, int]] = {}
        last = 0
        for place, (seen, split) in enumerate(survey.splits(sizes_of_parts(config))):
            places[seen.name] = split, place
            last = max(last, seen.priority) if split == "train" else last
        texts = survey.kept_texts()
        edge_types = tuple(survey.edge_types)
        example = with_attributes(survey.kept()[0], texts, list(survey.numbers), edge_types)
        kind, checked = kind_of(example, rolled=survey.rolled)
        found = {name: set(words) for name, words in survey.words.items()}
        renamed = new_words(found, config.public_words, checked=checked)
        return cls(
            kind, texts, list(survey.numbers), edge_types, renamed,
            survey.training_words(last), places,
        )  # fmt: skip

    def prepared(self, graph: AttributedGraph) -> AttributedGraph:
        """Return a graph as it is encoded."""
        made = with_words(
            with_attributes(graph, self.texts, self.numbers, self.edge_types), self.renamed
        )
        words = {
            name: tuple(self.renamed.get(name, {}).get(word, word) for word in self.words[name])
            for name in self.texts
        }
        if self.kind == "trace":
            made = as_job(made)
        return replace(made, vocabularies={**words, **made.vocabularies})

    def learned(self, config: FolderConfig, survey: Survey) -> tuple[GraphDataset, int]:
        """Return a data set with the schema of the kept training graphs, and their number."""
        train = [g for g in survey.kept() if self.places[g.name][0] == "train"]
        train.sort(key=lambda graph: self.places[graph.name][1])
        data = GraphDataset.build(
            config.folder.name, self.kind, {"train": [self.prepared(graph) for graph in train]},
            num_bins=config.num_bins, blocks=config.blocks, numbers=config.numbers,
        )  # fmt: skip
        renamed = {name: {new: old for old, new in t.items()} for name, t in self.renamed.items()}
        return replace(data, renamed={n: t for n, t in renamed.items() if t}), len(train)

    def ready(
        self, config: FolderConfig, known: Labels, data: GraphDataset, left_out: list[str]
    ) -> Iterator[Ready]:
        """Yield all graphs of the folder, read once more."""
        stream = folder_graphs(config, known, list[str]())
        while some := [self.prepared(graph) for graph in islice(stream, _GRAPHS_AT_ONCE)]:
            coded = GraphDataset.with_schema("", data.schema, self._parts(some))
            left_out.extend(coded.left_out)
            for split, _, name, content, dag in _of_data(coded):
                yield split, self.places[name][1], name, content, dag

    def _parts(self, graphs: Sequence[AttributedGraph]) -> dict[Split, list[AttributedGraph]]:
        """Return graphs by their split.

        Raises:
            DataError: If a graph was not there in the first pass.
        """
        parts: dict[Split, list[AttributedGraph]] = {split: [] for split in SPLITS}
        for graph in graphs:
            if graph.name not in self.places:
                raise DataError(
                    f"{graph.name}: was not in the folder at first; pack again when nothing "
                    "writes there."
                )
            parts[self.places[graph.name][0]].append(graph)
        return parts


def _written(
    draft: Path, ready: Iterable[Ready], attributes: int, header: PackedHeader, left_out: list[str]
) -> PackedHeader:
    """Write all files; ``left_out`` is complete when the graphs are."""
    spool = Spool(draft, attributes)
    splits, places, names, contents = list[int](), list[int](), list[str](), list[str]()
    with spool.writing():
        for split, place, name, content, dag in ready:
            splits.append(SPLITS.index(split))
            places.append(place)
            names.append(name)
            contents.append(content)
            spool.add(dag)
    order = np.lexsort((places, splits))
    counts = {split: splits.count(number) for number, split in enumerate(SPLITS)}
    if not counts["train"]:
        raise DataError(
            f"{header.name}: there is no training graph; check the files and the split."
        )
    spool.lay_down(draft, order, list(counts.values()))
    spool.remove()
    listed = {"names": [names[i] for i in order], "contents": [contents[i] for i in order]}
    write_text(draft / NAMES, json.dumps(listed) + "\n")
    numbers, words = _write_conditions(draft, [spool.conditions[i] for i in order])
    header = replace(header, splits=counts, numbers=numbers, words=words, left_out=tuple(left_out))
    header.write(draft)
    return header


def _write_conditions(
    draft: Path, rows: Sequence[Mapping[str, Condition]]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Write the conditions of all graphs; return the names of numbers, and the other words."""
    words: dict[str, dict[str, int]] = {}
    numbers: dict[str, int] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str):
                known = words.setdefault(name, {})
                known.setdefault(value, len(known))
            else:
                numbers.setdefault(name, len(numbers))
    numbers_BC = np.full((len(rows), len(numbers)), np.nan)
    words_BM = np.full((len(rows), len(words)), -1, dtype=np.int32)
    column_of = {name: column for column, name in enumerate(words)}
    for number, row in enumerate(rows):
        for name, value in row.items():
            if isinstance(value, str):
                words_BM[number, column_of[name]] = words[name][value]
            else:
                numbers_BC[number, numbers[name]] = value
    np.save(draft / "numbers.npy", numbers_BC)
    np.save(draft / "words.npy", words_BM)
    return tuple(numbers), {name: tuple(known) for name, known in words.items()}
