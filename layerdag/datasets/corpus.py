"""The embedded corpus of collected execution traces, one graph per run."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import cast

from layerdag.codec.folding import RankClassTrace, job_graph
from layerdag.datasets.cache import kept_dataset
from layerdag.datasets.dataset import GraphDataset, evenly_subsample
from layerdag.datasets.settings import CorpusConfig
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


def load_corpus(config: CorpusConfig) -> GraphDataset:
    """Load the runs of a corpus folder.

    The label is the measured step time in seconds, the minimum of the repeats; family, strategy,
    phase, world size, number of nodes and number of layers are further conditions. Raises
    TraceError if a corpus is missing or damaged and DataError if nothing is left for training.
    """
    own = embedded_corpus()
    folder = Path(config.folder or own)
    index = read_index(folder)
    folders = [(folder, list(index))]
    if config.further is not None:
        inside = folder / config.further
        further = inside if inside.is_dir() else config.further
        known = {record.graph_hash for record in index}
        new: dict[str, RunRecord] = {}
        for record in read_index(further):
            if record.graph_hash not in known:
                new.setdefault(record.graph_hash, replace(record, split="train"))
        folders.append((further, list(new.values())))
    load = partial(_built, config, folders)
    if not all(place.resolve().is_relative_to(own.resolve()) for place, _ in folders):
        return load()  # traces of a user leave no copy in a cache
    files = [
        place / name
        for place, found in folders
        for name in (INDEX, *sorted({record.shard for record in found}))
    ]
    settings = {name: v for name, v in asdict(config).items() if name not in ("folder", "further")}
    return kept_dataset(settings, files, load)


def _built(config: CorpusConfig, folders: list[tuple[Path, list[RunRecord]]]) -> GraphDataset:
    parts: Parts = {split: [] for split in SPLITS}
    left_out: list[str] = []
    for folder, records in folders:
        found, reasons = corpus_parts(config, folder, records)
        left_out += reasons
        for split in SPLITS:
            parts[split] += found[split]
    data = GraphDataset.build("corpus", "trace", parts, num_bins=config.num_bins)
    added = frozenset(record.run for _, found in folders[1:] for record in found)
    data = data.replaced(left_out=(*left_out, *data.left_out), extra_train=added)
    if not added:
        return data
    # Further runs were planned, not sampled: their sizes and strategies are no distribution that a
    # user of the corpus would ask for.
    members = [graph for graph in parts["train"] if graph.name not in added]
    schema = data.schema.with_table([dag.conditions for dag in data.members])
    return data.replaced(schema=schema, jobs={**data.jobs, "train": evenly_subsample(members)})


def corpus_parts(
    config: CorpusConfig, folder: Path, records: Iterable[RunRecord]
) -> tuple[Parts, list[str]]:
    """Return the graphs of some runs of a corpus by their split, and what was left out.

    Raises TraceError if the corpus is damaged.
    """
    parts: Parts = {split: [] for split in SPLITS}
    left_out: list[str] = []
    chosen = [
        record
        for record in records
        if (not config.families or record.family in config.families)
        and (not config.strategies or record.strategy in config.strategies)
    ]
    for record in chosen:
        if record.split not in SPLITS:
            raise TraceError(
                f"{folder}: run {record.run} is of split '{record.split}', which is none of "
                f"{', '.join(SPLITS)}; restore the index."
            )
    for run in track(read_runs(folder, chosen), "reading traces", len(chosen)):
        try:
            graph = run_graph(run)
        except DataError as error:
            left_out.append(f"{run.record.run}: {error}")
            continue
        if graph.num_nodes > config.max_nodes:
            left_out.append(
                f"{run.record.run}: {graph.num_nodes} nodes, more than {config.max_nodes}"
            )
            continue
        parts[cast(Split, run.record.split)].append(graph)
    return parts, left_out


def run_graph(run: CollectedRun) -> AttributedGraph:
    """Return the graph of one collected run.

    Raises DataError if its ranks contradict each other.
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
