"""The embedded corpus of collected execution traces, one graph per run."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from layerdag.codec.folding import RankClassTrace, job_graph
from layerdag.datasets.cache import kept_dataset
from layerdag.datasets.dataset import GraphDataset, evenly_subsample
from layerdag.errors import DataError, TraceError
from layerdag.graph.attributed_graph import LABEL, SPLITS, AttributedGraph, Condition, Split
from layerdag.runtime.terminal import track
from layerdag.traces.chakra.corpus import (
    INDEX,
    CollectedRun,
    RunRecord,
    embedded_corpus,
    read_index,
    read_runs,
)

Parts = dict[Split, list[AttributedGraph]]
_Folders = list[tuple[str | Path, list[RunRecord]]]
_Selection = tuple[int, tuple[str, ...], tuple[str, ...]]


def load_corpus(
    folder: str | Path | None = None,
    *,
    max_nodes: int = 2000,
    families: tuple[str, ...] = (),
    strategies: tuple[str, ...] = (),
    num_bins: int = 16,
    further: str | Path | None = None,
) -> GraphDataset:
    """Load the runs of a corpus folder (layout in ``layerdag.traces.pytorch``).

    The label is the measured step time in seconds, the minimum of the repeats; family, strategy,
    phase, world size, number of nodes and number of layers are further conditions.

    Args:
        folder: A corpus folder; None is the embedded corpus.
        max_nodes: Larger graphs are left out, and listed.
        families: Keep only these model families; all if empty.
        strategies: Keep only these strategies; all if empty.
        num_bins: Bins of each numeric attribute.
        further: A corpus folder with further runs, all of them to train on, by its path or, inside
            ``folder``, by its name; runs whose graph is one of the corpus are left out. Conditions
            that a request leaves open, and times of nodes, are drawn as in the corpus alone.

    Raises:
        TraceError: If a corpus is missing or damaged.
        DataError: If nothing is left for training.
    """
    folder = embedded_corpus() if folder is None else folder
    index = read_index(folder)
    folders: _Folders = [(folder, list(index))]
    if further is not None:
        known = {record.graph_hash for record in index}
        inside = Path(folder) / further
        folder = inside if inside.is_dir() else further
        folders.append((folder, _to_train_on(read_index(folder), known)))
    settings = (max_nodes, families, strategies)
    load = partial(_built, folders, settings, num_bins)
    own = embedded_corpus().resolve()
    if not all(Path(place).resolve().is_relative_to(own) for place, _ in folders):
        return load()  # traces of a user leave no copy in a cache
    files = [
        Path(place) / name
        for place, found in folders
        for name in (INDEX, *sorted({record.shard for record in found}))
    ]
    chosen = {"reader": "corpus", "selection": settings, "num_bins": num_bins}
    return kept_dataset(chosen, files, load)


def _built(folders: _Folders, selection: _Selection, num_bins: int) -> GraphDataset:
    parts, left_out = _read_parts(folders, *selection)
    data = GraphDataset.build("corpus", "trace", parts, num_bins=num_bins)
    added = frozenset(record.run for _, found in folders[1:] for record in found)
    data = data.replaced(left_out=(*left_out, *data.left_out), extra_train=added)
    if not added:
        return data
    members = [graph for graph in parts["train"] if graph.name not in added]
    return _with_conditions_of(members, data)


def corpus_parts(
    folder: str | Path | None,
    max_nodes: int,
    families: tuple[str, ...] = (),
    strategies: tuple[str, ...] = (),
) -> tuple[Parts, list[str]]:
    """Return the graphs of a corpus by split, as its index says, and what was left out.

    Arguments and errors are those of ``load_corpus``.
    """
    folder = embedded_corpus() if folder is None else folder
    return _read_parts([(folder, list(read_index(folder)))], max_nodes, families, strategies)


def parts_of_records(
    folder: str | Path, records: list[RunRecord], max_nodes: int
) -> tuple[Parts, list[str]]:
    """Return the graphs of some runs by their split, and what was left out."""
    return _read_parts([(folder, records)], max_nodes, (), ())


def _read_parts(
    folders: _Folders,
    max_nodes: int,
    families: tuple[str, ...],
    strategies: tuple[str, ...],
) -> tuple[Parts, list[str]]:
    parts: Parts = {"train": [], "val": [], "test": []}
    left_out: list[str] = []
    for folder, found in folders:
        records = [
            record
            for record in found
            if (not families or record.family in families)
            and (not strategies or record.strategy in strategies)
        ]
        splits = {record.run: _split_of(record, folder) for record in records}
        for run in track(read_runs(folder, records), "reading traces", len(records)):
            try:
                graph = run_graph(run)
            except DataError as error:
                left_out.append(f"{run.record.run}: {error}")
                continue
            if graph.num_nodes > max_nodes:
                left_out.append(f"{run.record.run}: {graph.num_nodes} nodes, more than {max_nodes}")
                continue
            parts[splits[run.record.run]].append(graph)
    return parts, left_out


def _with_conditions_of(members: Sequence[AttributedGraph], data: GraphDataset) -> GraphDataset:
    """Return the data set whose open conditions and jobs are those of the corpus itself.

    Further runs were planned, not sampled: their sizes and strategies are no distribution that a
    user of the corpus would ask for.
    """
    conditions = [dag.conditions for dag in data.members]
    schema = data.schema.with_table(conditions)
    return data.replaced(schema=schema, jobs={**data.jobs, "train": evenly_subsample(members)})


def _to_train_on(records: Iterable[RunRecord], known: set[str]) -> list[RunRecord]:
    """Return the runs whose graph occurs nowhere else, to train on."""
    found: list[RunRecord] = []
    for record in records:
        if record.graph_hash not in known:
            known.add(record.graph_hash)
            found.append(replace(record, split="train"))
    return found


def _split_of(record: RunRecord, folder: str | Path) -> Split:
    """Return the split that the index names.

    Raises:
        TraceError: If it is none.
    """
    for split in SPLITS:
        if record.split == split:
            return split
    raise TraceError(
        f"{folder}: run {record.run} is of split '{record.split}', which is none of "
        f"{', '.join(SPLITS)}; restore the index."
    )


def run_graph(run: CollectedRun) -> AttributedGraph:
    """Return the graph of one collected run.

    Raises:
        DataError: If its ranks contradict each other.
    """
    record = run.record
    classes = [
        RankClassTrace(trace, rank_class.ranks)
        for trace, rank_class in zip(run.traces, record.classes, strict=True)
    ]
    conditions: dict[str, Condition] = {
        LABEL: record.step_time_s_min,
        "family": record.family,
        "strategy": record.strategy,
        "phase": record.phase,
    }
    return job_graph(record.run, classes, record.groups, conditions)
