"""``compare``, ``validate``, ``fix`` and ``write``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerdag.api.checking import check_one, check_sample
from layerdag.codec.formats import Content, read, write_graph, writer_of
from layerdag.dag.dag import DAG
from layerdag.datasets.conversion import (
    GraphLike,
    attributed_graph,
    attributed_graphs,
    is_pyg,
)
from layerdag.datasets.dataset import GraphDataset, GraphSplit
from layerdag.datasets.encoding import encoded, translated, with_attributes_of, with_old_words
from layerdag.datasets.loading import load_dataset, read_dataset
from layerdag.errors import DataError, UsageError, VocabularyError
from layerdag.evaluation.graph_findings import graph_findings
from layerdag.evaluation.metrics.base import AttributeMetrics, Metric, attribute_views
from layerdag.evaluation.metrics.whole_programs import jobs_beside
from layerdag.evaluation.similarity import (
    DEFAULT_METRICS,
    QualityReport,
    compare as compare_dags,
)
from layerdag.evaluation.validity import check_structure
from layerdag.graph.attributed_graph import AttributedGraph, Split
from layerdag.graph.formats.rows import is_networkx
from layerdag.samples.manifest import is_manifest_folder, is_run
from layerdag.samples.reader import iter_samples
from layerdag.samples.stored import StoredSample
from layerdag.sampling.folder import write_sample_list
from layerdag.sampling.generated import GeneratedGraph, GeneratedJob
from layerdag.schema.schema import GraphSchema
from layerdag.traces.chakra.files import write_trace
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Trace, Workload
from layerdag.validation.checking import check_workload
from layerdag.validation.fixes import FixedWorkload, fix_workload
from layerdag.validation.rules import Finding

Graphs = GraphDataset | Iterable[GraphLike] | GraphLike
Metrics = Iterable[Metric | AttributeMetrics]


def compare(
    real: Graphs,
    test_or_generated: Graphs,
    generated: Graphs | None = None,
    *,
    metrics: Metrics = DEFAULT_METRICS,
    seed: int = 0,
    replicates: int = 200,
) -> QualityReport:
    """Return every figure of generated graphs against real test graphs, next to training graphs.

    ``compare(data, samples)`` is the usual call: of a data set, the training graphs and the test
    graphs are the two sides of what is real. ``compare(real, samples)`` takes every other graph of
    a list for each side, ``compare(train, test, samples)`` says which are which. Codes of
    different schemas are translated into those of the real graphs. About 3 s of one core for 500
    graphs of 140 nodes per set; jobs of PyTorch are also judged by the rules of whole training
    steps, which takes some 20 ms for each of at most 200 per set.

    Args:
        real: Real graphs that the generator learned from: a data set, a name or folder, or graphs
            of any kind.
        test_or_generated: The generated graphs, or with a third set real ones that the generator
            never saw.
        generated: Generated graphs, a folder of samples, or a data set, whose training graphs
            count.
        metrics: What to compute, from ``layerdag.evaluation.metrics`` or of your own:
            ``(*DEFAULT_METRICS, *NEIGHBORHOOD_METRICS)`` adds to the default.
        seed: Of the bootstrap.
        replicates: Resamples of the bootstrap.

    Returns:
        The figures; ``print`` shows a table, ``to_dict`` gives plain data.

    Raises:
        VocabularyError: If a generated graph has a word that the real graphs' schema lacks.
    """
    sets = _three_sets(real, test_or_generated, generated)
    try:
        schema, coded = _in_codes(*sets)
    except VocabularyError:
        # Samples of a model that learned the folder with its private words renamed.
        if not isinstance(real, str | Path) or not Path(real).is_dir():
            raise
        schema, coded = _in_codes(*_three_sets(read_dataset(real), test_or_generated, generated))
    views = attribute_views(schema)
    jobs = jobs_beside(_jobs(sets[0], "train"), _jobs(sets[1], "test"), _jobs(sets[2], "train"))
    return compare_dags(*coded, views, metrics=metrics, jobs=jobs, seed=seed, replicates=replicates)


Read = GraphDataset | Sequence[GraphLike]


def _jobs(graphs: Read, split: Split) -> Sequence[GraphLike]:
    """Return the jobs of a set as they were read; none where there are only codes."""
    if isinstance(graphs, GraphDataset):
        return graphs.jobs.get(split, ())
    return () if isinstance(graphs, GraphSplit) else graphs


Renamed = Mapping[str, Mapping[str, str]]


def _in_codes(
    train: Read, test: Read, made: Read
) -> tuple[GraphSchema, tuple[list[DAG], list[DAG], list[DAG]]]:
    sets = (train, test, made)
    schema, renamed = _common_schema(sets)
    if schema is None:
        raws = attributed_graphs([graph for graphs in sets for graph in graphs])
        schema = GraphSchema.fit("flow", raws)
        dags = iter([schema.encode(raw) for raw in raws])
        one, two, three = ([next(dags) for _ in graphs] for graphs in sets)
        return schema, (one, two, three)
    return schema, (
        _dags(train, "train", schema, renamed),
        _dags(test, "test", schema, renamed),
        _dags(made, "train", schema, renamed),
    )


def _three_sets(real: Graphs, second: Graphs, third: Graphs | None) -> tuple[Read, Read, Read]:
    first = _read_set(real)
    if third is not None:
        return first, _read_set(second), _read_set(third)
    if isinstance(first, GraphDataset):
        return first, first, _read_set(second)
    if len(first) < 2:
        raise UsageError(
            "Real graphs have two sides, those to compare with and those that show how far real "
            f"graphs are from each other; give at least two, found {len(first)}."
        )
    return first[::2], first[1::2], _read_set(second)


def _read_set(graphs: Graphs) -> Read:
    if isinstance(graphs, str | Path):
        folder = Path(graphs)
        if is_manifest_folder(folder) or is_run(folder):
            return list(iter_samples(folder))
        return load_dataset(graphs)
    if isinstance(graphs, GraphDataset | Sequence):
        return graphs
    if isinstance(graphs, Iterable) and not is_networkx(graphs) and not is_pyg(graphs):
        return list(graphs)
    return [graphs]


def _common_schema(sets: Sequence[Read]) -> tuple[GraphSchema | None, Renamed]:
    for graphs in sets:
        if isinstance(graphs, GraphDataset):
            return graphs.schema, graphs.renamed
        if isinstance(graphs, GraphSplit):
            return graphs.schema, {}
        if graphs and isinstance(graphs[0], GeneratedGraph):
            return graphs[0].schema, {}
    return None, {}


def _dags(graphs: Read, split: Split, schema: GraphSchema, renamed: Renamed) -> list[DAG]:
    if isinstance(graphs, GraphDataset):
        return translated(graphs.graphs[split], graphs.schema, schema)
    if isinstance(graphs, GraphSplit):
        return translated(graphs.graphs, graphs.schema, schema)
    return encoded([_in_words_of(graph, schema, renamed) for graph in graphs], schema)


def _in_words_of(graph: GraphLike, schema: GraphSchema, renamed: Renamed) -> GraphLike:
    if isinstance(graph, GeneratedGraph | DAG | Workload | Trace) or is_pyg(graph):
        return graph
    raw = attributed_graph(graph)
    known = {attribute.name for attribute in schema.attributes}
    missing = known - {*raw.categories, *raw.numbers}
    if len(missing) == len(known):
        raise UsageError(
            f"{raw.name}: has none of the attributes {', '.join(sorted(known))} of the real "
            "graphs; give its nodes attributes of these names."
        )
    return with_attributes_of(with_old_words(raw, renamed), schema)


def validate(thing: GraphLike | Iterable[GraphLike]) -> tuple[Finding, ...]:
    """Return where rules are broken that consumers of traces and graphs rely on; none is fine.

    Args:
        thing: A workload, a trace, a graph of any kind (networkx and PyG included), a sample, the
            path of one, or several of these. A sample of a job is checked as the traces that it
            becomes.

    Raises:
        DataError: If a path cannot be read, or a sampled job cannot become traces.
        UsageError: If it is none of these.
    """
    if isinstance(thing, GraphDataset):
        return tuple(check_structure(list(thing)).findings)
    is_one = isinstance(thing, str) or is_networkx(thing) or is_pyg(thing)
    if isinstance(thing, Iterable) and not is_one:
        return tuple(finding for one in thing for finding in _findings(one))
    return tuple(_findings(thing))


def fix(thing: Workload | Trace | str | Path) -> FixedWorkload:
    """Return a copy in which what breaks a rule on traces and has one safe answer is changed.

    Raises:
        DataError: If a path cannot be read, or holds a graph.
    """
    found = read(thing) if isinstance(thing, str | Path) else thing
    if isinstance(found, AttributedGraph):
        raise DataError(f"{found.name}: is a graph; only traces can be fixed.")
    return fix_workload(Workload((found,), {}, found.source) if isinstance(found, Trace) else found)


def _findings(thing: Any) -> Iterable[Finding]:
    if isinstance(thing, str | Path):
        return check_one(Path(thing)).findings
    if isinstance(thing, StoredSample):
        return check_sample(thing).findings
    if isinstance(thing, GeneratedGraph):
        return [replace(finding, sampled=True) for finding in thing.findings()]
    if isinstance(thing, Trace):
        return check_workload(Workload((thing,)))
    if isinstance(thing, Workload):
        return check_workload(thing)
    if isinstance(thing, DAG):
        return check_structure([thing]).findings
    if is_pyg(thing):
        return check_structure([DAG.from_pyg(thing, check=False)]).findings
    return graph_findings(attributed_graph(thing))


def write(thing: Any, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a workload, a trace, a graph of any kind, a sample, or a list of these; return where.

    Args:
        thing: What to write.
        path: ``.graphml``, ``.dot`` or ``.wf.json`` (WfFormat) for a graph; ``.json`` for a graph
            or a workload, without loss; ``.et`` for one trace; without a suffix the prefix of
            ``PREFIX.<rank>.et``, one for each rank. Of a list, the folder of all.
        overwrite: Whether a workload of that prefix, or samples in that folder, may be replaced.

    Raises:
        UsageError: If the suffix does not fit, or it is nothing that can be written.
        DataError: If a sample that is no job is to be written as traces.
        OSError: If the place cannot be written.
    """
    path = Path(path)
    if isinstance(thing, list | tuple):
        _write_all(thing, path, overwrite=overwrite)
    elif isinstance(thing, Trace):
        _write_trace(thing, path)
    elif isinstance(thing, Workload):
        _write_job(thing, path, overwrite=overwrite)
    elif isinstance(thing, GeneratedGraph) and path.suffix in ("", ".et"):
        _write_job(thing.workload(), path, overwrite=overwrite)
    else:
        write_graph(attributed_graph(thing, path.stem), path)
    return path


def _write_all(things: Sequence[Any], folder: Path, *, overwrite: bool) -> None:
    if things and all(isinstance(one, GeneratedGraph) for one in things):
        kind = "auto" if all(isinstance(one, GeneratedJob) for one in things) else "graphml"
        write_sample_list(things, folder, file_format=kind, overwrite=overwrite)
        return
    folder.mkdir(parents=True, exist_ok=True)
    if not overwrite and any(folder.iterdir()):
        raise UsageError(f"{folder}: is not empty; name another folder, or pass overwrite=True.")
    for number, one in enumerate(things):
        if isinstance(one, Workload | Trace):
            job = one if isinstance(one, Workload) else Workload((one,), {}, one.source)
            write_workload(job, folder / f"job-{number:05d}", overwrite=overwrite)
        else:
            name = f"graph-{number:05d}"
            write_graph(attributed_graph(one, name), folder / f"{name}.graphml")


def _write_job(job: Workload, path: Path, *, overwrite: bool) -> None:
    write_file = writer_of(path, Content.TRACES)
    if write_file is not None:
        write_file(path, job)
    elif path.suffix == ".et" and job.num_ranks == 1:
        _write_trace(job.traces[0], path)
    elif path.suffix in (".et", ".graphml"):
        raise UsageError(
            f"{path}: {job.num_ranks} ranks need a file each; name the prefix "
            f"{path.with_suffix('')}, or a .json file."
        )
    else:
        write_workload(job, path, overwrite=overwrite)


def _write_trace(trace: Trace, path: Path) -> None:
    if path.suffix != ".et":
        raise UsageError(f"{path}: a trace is written as .et; name such a file.")
    write_trace(trace, path)
