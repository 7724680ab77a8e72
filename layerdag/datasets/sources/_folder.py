"""Any folder of workloads (``PREFIX.<rank>.et``) or of flow graphs in any format."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from layerdag._runtime import track
from layerdag.codec import (
    CATEGORIES,
    EDGE_TYPES,
    OPEN_VOCABULARIES,
    VOCABULARIES,
    AttributedGraph,
    job_graph,
    rank_classes,
    size_conditions,
)
from layerdag.codec.blocks import BLOCK, INSIDE, OUTSIDE, is_rolled
from layerdag.datasets import (
    Blocks,
    GraphDataset,
    enough_to_judge,
    held_out_fraction,
    named_splits,
    split_graphs,
)
from layerdag.datasets.files import (
    STEP_TIMES,
    Labels,
    flow_format,
    read_flow,
    read_labels,
    read_step_time,
)
from layerdag.datasets.samples import SampleRun, StoredSample, is_run, iter_samples
from layerdag.datasets.schema import LABEL, NumberForm
from layerdag.datasets.sources._public_words import EDGE, publish
from layerdag.errors import DataError, GraphError
from layerdag.graph import Condition
from layerdag.traces import RankFile, read_workload

# A text attribute with more words than this is a name of nodes, not a category.
MAX_WORDS = 512
_TRACE = re.compile(r"(?P<single>.+)\.et(?:\.gz|\.xz)?")

Reader = Callable[[Path, str], AttributedGraph]


def load_folder(  # noqa: PLR0913
    folder: str | Path,
    *,
    labels: str | Path | None = None,
    seed: int = 0,
    max_nodes: int = 10_000,
    num_bins: int = 16,
    held_out: float | None = None,
    public_words: Sequence[str] = (),
    blocks: Blocks = "whole",
    numbers: NumberForm = "absolute",
) -> GraphDataset:
    """Load every graph below a folder.

    A graph is called as its file without the ending, or as the workload's prefix, relative to the
    folder. Graphs are split by content and seed (equal graphs stay together) unless the label file
    has a column ``split``: a tenth for validation and a tenth for test; of fewer than 100 graphs
    ten each, as long as that is no more than a fifth.

    Args:
        folder: Searched with its sub-folders, for traces or for flow graphs, not both; or samples
            in parts, as ``layerdag sample format=tar`` writes them.
        labels: CSV or JSON, see ``label_file``. A graph without a line in it has the step time that
            ``layerdag collect`` measured (``NAME.steps.json``) as its label, if there is one.
        seed: Of the split.
        max_nodes: Larger graphs are left out, and listed.
        num_bins: Bins of each numeric attribute.
        held_out: Share of the graphs for validation and test together; None for the rule above.
        public_words: Words of flow graphs and of conditions that may enter the schema, beside those
            that are public (``_public_words.py``); the others are renamed. "all" keeps every word.
        blocks: "rolled" to learn repeated blocks of jobs as one copy and their number.
        numbers: "relative" to learn how numbers of nodes follow from conditions, and what is left.

    Raises:
        ConfigError: If ``held_out`` is no share, or ``public_words`` a word.
        DataError: If there is no graph, or both kinds, or labels and graphs share no name.
    """
    folder = Path(folder)
    graphs, known, left_out = folder_graphs(folder, labels, max_nodes)
    graphs = align_schemas(graphs)
    kind = "trace" if set(CATEGORIES) <= set(graphs[0].categories) else "flow"
    checked = CATEGORIES if kind == "trace" else ()  # their words were looked at when folded
    if kind == "trace" and all(is_rolled(graph, EDGE_TYPES) for graph in graphs):
        checked = (*checked, BLOCK, EDGE)
    graphs, renamed = publish(graphs, public_words, checked=checked)
    if kind == "trace":
        graphs = [_as_job(graph) for graph in graphs]
    sizes = enough_to_judge if held_out is None else held_out_fraction(held_out)
    parts = (
        named_splits(graphs, known.splits)
        if known.splits
        else split_graphs(graphs, seed, sizes=sizes)
    )
    data = GraphDataset.build(
        folder.name, kind, parts, num_bins=num_bins, blocks=blocks, numbers=numbers
    )
    return replace(data, left_out=(*left_out, *data.left_out), renamed=renamed)


def folder_graphs(
    folder: Path, labels: str | Path | None, max_nodes: int
) -> tuple[list[AttributedGraph], Labels, list[str]]:
    """Return the graphs below a folder with their conditions, the labels, and what was left out.

    Arguments and errors are those of ``load_folder``.
    """
    known = read_labels(labels) if labels else Labels({}, {})
    sources = _graphs_in(folder, Path(labels) if labels else None)
    graphs: list[AttributedGraph] = []
    left_out: list[str] = []
    for name, read in sources:
        try:
            graph = read()
        except DataError as error:
            left_out.append(f"{name}: {error}")
            continue
        if graph.num_nodes > max_nodes:
            left_out.append(f"{name}: {graph.num_nodes} nodes, more than {max_nodes}")
            continue
        measured = known.conditions.get(name) or _measured(folder / f"{name}{STEP_TIMES}", left_out)
        graphs.append(replace(graph, conditions={**graph.conditions, **measured}))
    if not graphs:
        raise DataError(
            f"{folder}: no graph could be read; "
            + (f"the first reason: {left_out[0]}" if left_out else "it holds no .et or .graphml.")
        )
    _check_names(folder, labels, known, graphs)
    return graphs, known, left_out


def _as_job(graph: AttributedGraph) -> AttributedGraph:
    """Return the graph of a job with the vocabularies that all jobs have."""
    words = {**VOCABULARIES, **({BLOCK: (OUTSIDE, INSIDE)} if BLOCK in graph.categories else {})}
    return replace(graph, open_vocabularies=OPEN_VOCABULARIES, vocabularies=words)


def _measured(path: Path, left_out: list[str]) -> dict[str, Condition]:
    """Return the step time that was measured when a job was traced, nothing if there is none."""
    if not path.is_file():
        return {}
    try:
        return {LABEL: read_step_time(path)}
    except DataError as error:
        left_out.append(f"label of {path.name}: {error}")
        return {}


def align_schemas(graphs: Sequence[AttributedGraph]) -> list[AttributedGraph]:
    """Return the graphs with the same attributes and edge types.

    An attribute that a graph lacks is absent there (NaN, or the word ""); one that is text in some
    graph is text in all; a text attribute of more than ``MAX_WORDS`` words is left out.
    """
    texts = {name for graph in graphs for name in graph.categories}
    numbers = [n for n in dict.fromkeys(n for g in graphs for n in g.numbers) if n not in texts]
    categories: dict[str, set[str]] = {
        name: {word for graph in graphs for word in _words(graph, name)} for name in texts
    }
    # The first graph's order is kept: the first attribute is the kind of a node.
    order = list(dict.fromkeys(name for graph in graphs for name in graph.categories))
    order += sorted(texts - set(order))
    kept = [name for name in order if len(categories[name]) <= MAX_WORDS]
    edge_types = tuple(dict.fromkeys(name for graph in graphs for name in graph.edge_type_names))
    return [_with_attributes(graph, kept, numbers, edge_types) for graph in graphs]


def _with_attributes(
    graph: AttributedGraph,
    texts: Sequence[str],
    numbers: Sequence[str],
    edge_types: tuple[str, ...],
) -> AttributedGraph:
    """Return the graph with exactly these attributes and edge types."""
    table_T = np.array([edge_types.index(name) for name in graph.edge_type_names], dtype=np.int64)
    absent_N = np.full(graph.num_nodes, np.nan)
    return replace(
        graph,
        categories={name: _words(graph, name) for name in texts}
        or {"kind": ["node"] * graph.num_nodes},
        numbers={name: graph.numbers.get(name, absent_N) for name in numbers},
        edge_type_E=table_T[graph.edge_type_E],
        edge_type_names=edge_types,
    )


def _words(graph: AttributedGraph, name: str) -> list[str]:
    """Return an attribute as words, "" where it is absent."""
    if name in graph.categories:
        return list(graph.categories[name])
    if name in graph.numbers:
        return ["" if np.isnan(v) else f"{v:g}" for v in graph.numbers[name].tolist()]
    return [""] * graph.num_nodes


def _graphs_in(
    folder: Path, labels: Path | None
) -> Iterator[tuple[str, Callable[[], AttributedGraph]]]:
    """Yield name and reader of each graph; samples in parts are read as a stream."""
    if is_run(folder):
        num = SampleRun.read(folder).num
        for sample in track(iter_samples(folder), "reading samples", num):
            yield sample.name, partial(_sample, sample)
    else:
        sources = _sources(folder, labels)
        for name, (path, reader) in track(sources.items(), "reading graphs", len(sources)):
            yield name, partial(reader, path, name)


def _sample(sample: StoredSample) -> AttributedGraph:
    """Return the graph of a sample without what was requested of it: that is no measurement."""
    if sample.is_job:
        workload = sample.workload()
        return job_graph(sample.name, rank_classes(workload), workload.groups, {})
    return _sized(sample.graph, sample.name)


def _sources(folder: Path, labels: Path | None) -> dict[str, tuple[Path, Reader]]:
    """Return path and reader of each graph by its name, in order of the names."""
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder; check the path.")
    traces: dict[str, tuple[Path, Reader]] = {}
    flows: dict[str, tuple[Path, Reader]] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or (labels is not None and path.samefile(labels)):
            continue
        of_rank, trace = RankFile.of(path.name), _TRACE.fullmatch(path.name)
        if of_rank:
            at = path.parent / of_rank.prefix
            traces[at.relative_to(folder).as_posix()] = (at, _workload)
        elif trace:
            name = path.parent / trace["single"]
            traces[name.relative_to(folder).as_posix()] = (path, _workload)
        elif _holds_graph(path):
            stem = path.name.removesuffix("".join(_endings(path)))
            flows[(path.parent / stem).relative_to(folder).as_posix()] = (path, _flow)
    if traces and flows:
        raise DataError(
            f"{folder}: holds {len(traces)} workloads and {len(flows)} flow graphs; a data set is "
            "made of one kind, so name a sub-folder."
        )
    return traces or flows


def _endings(path: Path) -> list[str]:
    """Return the ending of a graph's file, with that of an archive behind it."""
    suffixes = path.suffixes
    packed = suffixes[-1:] if suffixes[-1].lower() in (".gz", ".xz") else []
    return suffixes[-1 - len(packed) :]


def _holds_graph(path: Path) -> bool:
    """Return whether a file begins like a flow graph; what cannot be unpacked is none."""
    try:
        return flow_format(path) is not None
    except GraphError:
        return False


def _workload(prefix: Path, name: str) -> AttributedGraph:
    """Read all ranks of a job as one graph."""
    workload = read_workload(prefix)
    return job_graph(name, rank_classes(workload), workload.groups, {})


def _flow(path: Path, name: str) -> AttributedGraph:
    """Read a flow graph of any format."""
    return _sized(read_flow(path), name)


def _sized(graph: AttributedGraph, name: str) -> AttributedGraph:
    """Return a flow graph under its name in the folder, with its sizes as conditions."""
    conditions = {**graph.conditions, **size_conditions(graph.layer_N)}
    return replace(graph, name=name, conditions=conditions)


def _check_names(
    folder: Path, path: str | Path | None, labels: Labels, graphs: Sequence[AttributedGraph]
) -> None:
    """Raise DataError if labels are given but none of them belongs to a graph."""
    names = [graph.name for graph in graphs]
    known: Mapping[str, object] = labels.conditions
    if known and not set(names) & set(known):
        raise DataError(
            f"{path}: names graphs such as '{next(iter(known))}', but those of {folder} are called "
            f"such as '{names[0]}'; make the names agree."
        )
