"""Load any folder of traces or flow graphs; its words stay private unless they are public."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from layerdag.codec.folding import CATEGORIES
from layerdag.codec.vocabulary import OTHER, PublicWords
from layerdag.dag.dag import DAG
from layerdag.dag.program_numbers import program_numbers
from layerdag.datasets.alignment import MAX_WORDS, align_schemas
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.private_words import rename_private_words
from layerdag.datasets.settings import LABEL_FILES, FolderConfig
from layerdag.datasets.sources import JobSource, find_sources, job_of
from layerdag.datasets.splits import (
    has_enough_held_out,
    held_out_fraction,
    named_splits,
    split_graphs,
)
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import (
    LABEL,
    MAX_COLUMNS,
    SPLITS,
    STEP_TIMES,
    AttributedGraph,
    Condition,
    Labels,
    read_labels,
    read_step_time,
    size_conditions,
)
from layerdag.kinds.registry import kind_of_graph
from layerdag.runtime.notes import Note, NoteCollector, NoteKind, merge_notes
from layerdag.runtime.settings import shorten
from layerdag.runtime.terminal import track
from layerdag.samples.manifest import SampleRun, is_run
from layerdag.samples.reader import iter_samples
from layerdag.samples.stored import StoredSample
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema


def load_folder(config: FolderConfig, *, as_jobs: bool = False) -> GraphDataset:
    """Load every graph below a folder; forward programs of traces that record arguments.

    The name of a graph is that of its file without the ending, or the prefix of the workload,
    relative to the folder. Graphs are split by content and seed (equal graphs stay together) unless
    the label file has a column ``split``. With ``as_jobs`` traces are loaded as jobs, whose nodes
    have FLOPs, bytes and durations, even if they record arguments.

    Raises:
        ConfigError: If ``held_out`` is no share, or ``public_words`` a word.
        DataError: If there is no graph, or both kinds, or labels and graphs share no name.
    """
    left_out: list[str] = []
    noted: list[Note] = []
    known = folder_labels(config)
    graphs = list(folder_graphs(config, known, left_out, noted, as_jobs=as_jobs))
    data = dataset_of(config, graphs, known)
    unused = NoteCollector(str(config.folder))
    for name in LABEL_FILES if config.labels is None else ():
        if (config.folder / name).is_file():
            unused.add(
                NoteKind.LABEL, name, "lies in the folder and is not used; name it to use it"
            )
    notes = [
        *noted,
        *unused.notes,
        *known.notes,
        *_unmatched_labels(config, known, [graph.name for graph in graphs]),
    ]
    notes += [note for graph in graphs for note in graph.notes]
    return data.replaced(left_out=(*left_out, *data.left_out), notes=merge_notes(notes))


def folder_labels(config: FolderConfig) -> Labels:
    """Return the labels of a folder of graphs."""
    return read_labels(config.labels).with_folders() if config.labels else Labels({}, {})


def folder_graphs(
    config: FolderConfig,
    known: Labels,
    left_out: list[str],
    notes: list[Note],
    *,
    as_jobs: bool = False,
) -> Iterator[AttributedGraph]:
    """Yield the graphs of a folder with their labels, as they are in the files.

    Appends to ``left_out`` why graphs are missing, and notes on the others to ``notes``. Raises
    DataError if there is no graph, or labels and graphs share no name.
    """
    names, values = [], set[str]()
    for name, read in _graphs_in(config, left_out, notes, as_jobs):
        try:
            graph = read()
        except DataError as error:
            left_out.append(f"{name}: {error}")
            continue
        if graph.num_nodes > config.max_nodes:
            left_out.append(f"{name}: {graph.num_nodes} nodes, more than {config.max_nodes}")
            continue
        measured = known.conditions.get(name) or _measured(
            config.folder / f"{name}{STEP_TIMES}", left_out
        )
        names.append(name)
        conditions = {**graph.conditions, **measured}
        values.update(conditions)
        if len(values) > MAX_COLUMNS:
            raise DataError(
                f"{config.folder}: its graphs have more than {MAX_COLUMNS} different graph-level "
                f"values, such as '{shorten(min(conditions), 40)}'; keep those that samples are to "
                "be asked for."
            )
        yield replace(graph, conditions=conditions)
    if not names:
        why = f"the first reason: {left_out[0]}" if left_out else "it holds no trace and no graph."
        raise DataError(f"{config.folder}: no graph could be read; {why}")
    if known.conditions and not set(names) & set(known.conditions):
        raise DataError(
            f"{config.labels}: names graphs such as '{next(iter(known.conditions))}', but those of "
            f"{config.folder} are called such as '{names[0]}'; make the names agree."
        )


def dataset_of(
    config: FolderConfig, graphs: Sequence[AttributedGraph], known: Labels
) -> GraphDataset:
    """Return the data set of all graphs of a folder."""
    aligned = align_schemas(graphs)
    if set(CATEGORIES) - set(aligned[0].categories) == {"op"}:
        raise DataError(
            f"{aligned[0].name} and the jobs beside it have more than {MAX_WORDS} different "
            "operators; list those to keep in 'public_words' instead of all."
        )
    kind = kind_of_graph(aligned[0])
    if config.min_programs < 1:
        raise DataError(f"data.min_programs is {config.min_programs}; it must be 1 or more.")
    kind.require_public(aligned, str(config.folder))
    if not kind.has_steps:
        if config.min_programs != 1:
            raise DataError(
                f"{config.folder}: data.min_programs is {config.min_programs}, but it holds no "
                "programs; words of other graphs are renamed unless data.public_words has them."
            )
        if config.avoid_copies:
            raise DataError(
                f"{config.folder}: data.avoid_copies is of programs, and it holds none; "
                "'layerdag audit' counts copies of other graphs."
            )
    public, renamed = rename_private_words(aligned, config.public_words, checked=kind.known_words)
    public = [kind.with_vocabularies(graph) for graph in public]
    parts = (
        named_splits(public, known.splits)
        if known.splits
        else split_graphs(
            public,
            config.seed,
            sizes=has_enough_held_out
            if config.held_out is None
            else held_out_fraction(config.held_out),
        )
    )
    train, left_out = _programs_of_shared_words(parts["train"], config.min_programs)
    if parts["train"] and not train:
        raise DataError(
            f"{config.folder}: no program is left whose words all are those of "
            f"{config.min_programs} training programs; lower data.min_programs, or add programs."
        )
    data = GraphDataset.build(
        config.data_name, kind, {**parts, "train": train},
        num_bins=config.num_bins,
    )  # fmt: skip
    data = data.replaced(renamed=renamed, left_out=(*left_out, *data.left_out))
    return avoiding_copies(data) if config.avoid_copies else data


def avoiding_copies(data: GraphDataset) -> GraphDataset:
    """Return programs with hashes of their structures in the schema, so that none is repeated."""
    held = (dag for split in SPLITS for dag in data.graphs[split])
    known = frozenset(data.schema.structure_hashes(held))
    return data.replaced(schema=replace(data.schema, structures=known))


def _programs_of_shared_words(
    graphs: Sequence[AttributedGraph], least: int
) -> tuple[list[AttributedGraph], list[str]]:
    """Return programs all of whose words ``least`` programs have, and why others are left out."""
    if least < 2:
        return list(graphs), []
    number_G = program_numbers(graphs).tolist()
    words = [
        {(name, word) for name, column in graph.categories.items() for word in column}
        for graph in graphs
    ]
    left_out: list[str] = []
    kept = list(range(len(graphs)))
    while True:
        holders: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for i in kept:
            for word in words[i]:
                holders[word].add(number_G[i])
        rare = {word for word, found in holders.items() if len(found) < least}
        if not rare:
            return [graphs[i] for i in kept], left_out
        for i in kept:
            if mine := words[i] & rare:
                attribute, first = min(mine)
                left_out.append(
                    f"{graphs[i].name}: fewer than {least} programs have its {attribute} '{first}'"
                )
        kept = [i for i in kept if not words[i] & rare]


def _measured(path: Path, left_out: list[str]) -> dict[str, Condition]:
    if not path.is_file():
        return {}
    try:
        return {LABEL: read_step_time(path)}
    except DataError as error:
        left_out.append(f"label of {path.name}: {error}")
        return {}


def _graphs_in(
    config: FolderConfig, left_out: list[str], notes: list[Note], as_jobs: bool
) -> Iterator[tuple[str, Callable[[], AttributedGraph]]]:
    """Yield name and reader of each graph; samples in parts are read as a stream."""
    folder, words = config.folder, config.public_words
    if is_run(folder):
        run = SampleRun.read(folder)
        if unread := run.unread(folder):
            left_out.append(unread)
        for sample in track(iter_samples(folder), "reading samples", run.num):
            yield sample.name, partial(_sample, sample, words)
    else:
        sources = find_sources(folder, labels=config.labels, most_files=None)
        left_out += sources.faulty
        learned: Sequence[JobSource] = sources.found
        if not as_jobs:
            from layerdag.datasets.job_programs import learned_sources  # runs programs: slow

            learned, without, noted = learned_sources(folder, learned)
            left_out += without
            notes += noted
        traces = [source.name for source in learned if source.is_trace]
        graphs = [source.name for source in learned if not source.is_trace]
        if traces and graphs:
            raise DataError(
                f"{folder}: holds jobs of traces ({len(traces)}, such as '{traces[0]}') and graphs "
                f"({len(graphs)}, such as '{graphs[0]}'); a data set is made of one kind, so name "
                "a sub-folder, or move the others away."
            )
        for source in track(learned, "reading graphs", len(learned)):
            yield source.name, partial(source.graph, words)


def _sample(sample: StoredSample, public_words: PublicWords) -> AttributedGraph:
    if sample.is_job:
        return job_of(sample.name, sample.workload(), public_words)
    conditions = {**sample.graph.conditions, **size_conditions(sample.graph.layer_N)}
    return replace(sample.graph, name=sample.name, conditions=conditions)


def unknown_operators(schema: GraphSchema, dag: DAG) -> int:
    """Return the number of nodes of a job whose operator is not public and not kept."""
    first = schema.attributes[0]
    if not isinstance(first, CategoryAttribute) or OTHER not in first.values:
        return 0
    return int((dag.x_NA[:, 0] == first.values.index(OTHER)).sum())


def _unmatched_labels(
    config: FolderConfig, labels: Labels, names: Sequence[str]
) -> tuple[Note, ...]:
    notes, known = NoteCollector(str(config.labels)), set(names)
    for name in labels.conditions.keys() - known:
        # Each label has the name of a folder beside its own; one of both is enough.
        own = name.rpartition("/")[0] if name.rpartition("/")[0] in labels.conditions else name
        if own == name and f"{name}/{name.rpartition('/')[2]}" not in known:
            notes.add(NoteKind.LABEL, name, "names no graph of the folder; left out")
    return notes.notes
