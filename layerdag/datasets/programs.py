"""The forward programs of the embedded corpus' training runs, one graph per run."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.dag.program_numbers import needed_programs, program_numbers
from layerdag.datasets.cache import kept_dataset
from layerdag.datasets.corpus import corpus_parts, run_graph
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.folder import avoiding_copies
from layerdag.datasets.run_plans import STEPS, MeasuredStep, measured_steps, run_plans
from layerdag.datasets.settings import CorpusConfig, ProgramsConfig
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import (
    LABEL,
    SPLITS,
    AttributedGraph,
    Condition,
    Split,
    size_conditions,
)
from layerdag.graph.formats.program_json import program_graph
from layerdag.kinds.program import PROGRAM
from layerdag.runtime.json_shape import parse_json
from layerdag.runtime.notes import merge_notes
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.terminal import track
from layerdag.schema.durations import Durations, fit_durations
from layerdag.schema.plan_tables import fit_plans
from layerdag.schema.size_tables import DEPTH, FAMILY
from layerdag.traces.chakra.corpus import INDEX, embedded_corpus, read_index, read_runs

PROGRAMS = "programs"
"""Folder of the programs of a corpus, inside it."""
PEAK_BYTES = "peak_bytes"
"""Condition: the most memory that a measured step had allocated."""
_HELD_OUT = 0.1
_MIN_SPLIT = 5  # structures of a family from which on one is held out at least


def load_programs(config: ProgramsConfig) -> GraphDataset:
    """Load the programs of a folder with a file of JSON lines for each family.

    Conditions are the family, the numbers of nodes and of layers, and the depth, the number of
    units. Programs of one structure, whatever their tables of sizes, are in one split: a tenth of
    the structures of each family each for validation and test, none of families with few. The plans
    of their runs, where the folder of a corpus holds them, are kept in the schema. Raises DataError
    if a file is damaged, calls operators that are not PyTorch's, or nothing is left for training.
    """
    folder = config.folder or embedded_programs(config.corpus)
    files = [
        path
        for path in sorted(folder.glob("*.jsonl.xz"))
        if not config.families or path.name.partition(".")[0] in config.families
    ]
    if not files:
        raise DataError(f"{folder}: holds no FAMILY.jsonl.xz of the families asked for.")
    load = partial(_built, config, folder, files)
    if config.operator_times or not folder.resolve().is_relative_to(embedded_corpus().resolve()):
        return load()  # programs of a user leave no copy in a cache
    chosen = {"reader": "programs", "seed": config.seed, "avoid_copies": config.avoid_copies}
    beside = [folder / STEPS, folder.parent / INDEX, folder.parent / "further" / INDEX]
    return kept_dataset(chosen, [*files, *filter(Path.is_file, beside)], load)


def _built(config: ProgramsConfig, folder: Path, files: Sequence[Path]) -> GraphDataset:
    parts: dict[Split, list[AttributedGraph]] = {split: [] for split in SPLITS}
    steps = measured_steps(folder)
    for path in track(files, "reading programs", len(files)):
        graphs = [_measured(graph, steps.get(graph.name)) for graph in _read(path)]
        PROGRAM.require_public(graphs, str(path))
        for split, graph in zip(_splits(graphs, config.seed), graphs, strict=True):
            parts[split].append(graph)
    notes = merge_notes(note for graphs in parts.values() for g in graphs for note in g.notes)
    data = GraphDataset.build("programs", "program", parts).replaced(notes=notes)
    plan_of = {run: step.plan for run, step in steps.items()} or run_plans(folder.parent)
    numbers = program_numbers(parts["train"])
    known = [(plan_of[g.name], n) for g, n in zip(parts["train"], numbers, strict=True)
             if g.name in plan_of]  # fmt: skip
    if known:
        plans, program_G = zip(*known, strict=True)
        found = fit_plans(plans, np.array(program_G), needed_programs(numbers))
        data = data.replaced(schema=replace(data.schema, plans=found))
    if config.operator_times:
        names = [graph.name for graph in parts["train"]]
        program_of = dict(zip(names, numbers.tolist(), strict=True))
        durations = _run_durations(folder.parent, program_of)
        data = data.replaced(schema=replace(data.schema, durations=durations))
    return avoiding_copies(data) if config.avoid_copies else data


def _run_durations(corpus: Path, program_of: Mapping[str, int]) -> Durations:
    """Return how long operators took in runs, given the number of the program of each run."""
    if not (corpus / INDEX).is_file():
        raise DataError(
            f"{corpus}: holds no runs ({INDEX} is missing), so nothing tells how long operators "
            "take; leave operator_times out."
        )
    records = [record for record in read_index(corpus) if record.run in program_of]
    graphs = [run_graph(run) for run in read_runs(corpus, records)]
    found = None
    if graphs:
        program_G = np.array([program_of[record.run] for record in records])
        found = fit_durations(graphs, needed_programs(program_G), program_G)
    if found is None:
        raise DataError(
            f"{corpus}: {len(graphs)} of its runs are of the programs to train on, too few to tell "
            "how long operators take; leave operator_times out."
        )
    return found


def jobs_of_programs(programs: GraphDataset, corpus: Path, max_nodes: int = 2000) -> GraphDataset:
    """Return the training steps that a corpus holds of programs, split as the programs are.

    Larger steps than ``max_nodes`` are left out, and listed. Raises TraceError if the corpus is
    damaged and DataError if it has no step of a program to train on.
    """
    split_of = {name: split for split in SPLITS for name in programs.names[split]}
    found = [record for record in read_index(corpus) if record.run in split_of]
    records = [replace(record, split=split_of[record.run]) for record in found]
    parts, left_out = corpus_parts(CorpusConfig(max_nodes=max_nodes), corpus, records)
    data = GraphDataset.build("corpus", "trace", parts)
    # The split is that of the programs, by which samples tell what their model learned from.
    return data.replaced(left_out=(*left_out, *data.left_out), contents=programs.contents)


def _measured(graph: AttributedGraph, step: MeasuredStep | None) -> AttributedGraph:
    if step is None:
        return graph
    found = {LABEL: step.step_time_s, PEAK_BYTES: float(step.peak_bytes)}
    return replace(graph, conditions={**graph.conditions, **found})


def embedded_programs(corpus: str) -> Path:
    """Return the folder of an embedded corpus of programs, "collected", "public" or "h100"."""
    folder = embedded_corpus() / PROGRAMS
    return folder if corpus == "collected" else folder / corpus


def program_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON data of each program of a folder. Raises DataError if a file is damaged."""
    for path in sorted(folder.glob("*.jsonl.xz")):
        for _, data in _rows(path):
            yield data


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(read_parsed(path).splitlines(), start=1):
        where = f"{path}: line {number}"
        try:
            yield where, parse_json(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where} is no JSON: {error}.") from error


def _read(path: Path) -> Iterator[AttributedGraph]:
    family = path.name.partition(".")[0]
    for where, data in _rows(path):
        graph = program_graph(data, where)
        conditions: dict[str, Condition] = {
            **graph.conditions,
            FAMILY: family,
            **size_conditions(graph.layer_N),
        }
        if data.get("units"):
            conditions[DEPTH] = float(len(data["units"]))
        yield replace(graph, conditions=conditions)


def _splits(graphs: Sequence[AttributedGraph], seed: int) -> Iterator[Split]:
    """Yield the split of each program; those of one structure are together."""
    number_G = program_numbers(graphs)
    count = int(number_G.max()) + 1
    rank_P = np.random.default_rng(seed).permutation(count)
    held = max(int(count >= _MIN_SPLIT), round(_HELD_OUT * count))
    named: defaultdict[int, Split] = defaultdict(lambda: "train")
    named.update(dict.fromkeys(range(held), "test"))
    named.update(dict.fromkeys(range(held, 2 * held), "val"))
    for number in number_G.tolist():
        yield named[int(rank_P[number])]
