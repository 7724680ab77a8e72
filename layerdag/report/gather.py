"""Gather the parts of a report from sets of graphs and jobs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.codec.vocabulary import public_operators
from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import LayerdagError, SimulationError
from layerdag.evaluation.metrics.base import AttributeView, MetricResult
from layerdag.evaluation.metrics.descriptor_metrics import descriptors
from layerdag.evaluation.metrics.whole_programs import JOB_METRICS
from layerdag.evaluation.similarity import QualityReport, histograms_of
from layerdag.evaluation.validity import StructureReport
from layerdag.graph.attributed_graph import LABEL, AttributedGraph
from layerdag.hardware.operators import OperatorKind, operator_kind
from layerdag.privacy.copies import Novelty
from layerdag.report.content import (
    CategoryFractions,
    Distribution,
    Lane,
    Neighbors,
    Picture,
    Sample,
    SummaryRow,
    SystemTimes,
    Timeline,
    nearest_real,
)
from layerdag.runtime.terminal import track
from layerdag.sampling.generated import GeneratedGraph, as_workload
from layerdag.schema.attributes import CategoryAttribute
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.config import NetworkConfig, SystemConfig, Topology, UnsupportedCollectives
from layerdag.simulator.run import SimulationResult, simulate
from layerdag.surrogates.families.registry import FAMILIES
from layerdag.surrogates.targets import labeled
from layerdag.surrogates.training_sets import REAL, SHUFFLED, SYNTHETIC
from layerdag.surrogates.tstr import TransferReport, evaluate_tstr
from layerdag.traces.trace import NodeType, Workload
from layerdag.viz.numbers import interval, number, percent, percents

KINDS = {
    OperatorKind.PRODUCT: "matrix product",
    OperatorKind.ATTENTION: "matrix product",
    OperatorKind.CONVOLUTION: "matrix product",
    OperatorKind.REDUCTION: "reduction",
    OperatorKind.MOVEMENT: "data movement",
    OperatorKind.OPTIMIZER: "optimizer",
    OperatorKind.ELEMENTWISE: "element-wise",
}
"""What pictures call each kind of operator."""


def vocabularies(data: GraphDataset) -> tuple[tuple[str, ...], ...]:
    """Return the name of each code of each attribute."""
    return tuple(
        a.values if isinstance(a, CategoryAttribute) else tuple(map(str, range(a.num_codes)))
        for a in data.schema.attributes
    )


@dataclass(frozen=True, eq=False)
class DecodedJobs:
    """Jobs as traces, and what decoding them took.

    Attributes:
        workloads: One per job.
        repairs: How often each contradiction was repaired.
        completions: How often decoding wrote down what graphs of real jobs leave out, too.
    """

    workloads: list[Workload]
    repairs: dict[str, int]
    completions: dict[str, int]


def decoded_jobs(graphs: Iterable[AttributedGraph]) -> DecodedJobs:
    """Decode jobs into traces, and count what that takes."""
    workloads, repairs, completions = [], Counter[str](), Counter[str]()
    for graph in graphs:
        unfolded = as_workload(graph)
        workloads.append(unfolded.workload)
        repairs.update(unfolded.repairs)
        completions.update(unfolded.completions)
    return DecodedJobs(workloads, dict(repairs), dict(completions))


def picture_of(data: GraphDataset, dag: DAG, title: str) -> Picture:
    """Return a graph with the operator and stage of each node, to be drawn."""
    graph = data.schema.decode(dag)
    operators = tuple(graph.categories["op"])
    kinds = zip(operators, graph.categories["type"], strict=True)
    return Picture(title, dag, operators, tuple(kind_of(*pair) for pair in kinds))


def kind_of(operator: str, node_type: str) -> str:
    """Return what a node does, in a word or two, for colors."""
    if node_type != "COMP":
        return "communication"
    kind = operator_kind(operator, operator.partition(".")[0])  # "mm.qkv.B.dx" of our own jobs
    if kind is None:
        return "element-wise" if operator in public_operators() else "other"
    return KINDS[kind]


@dataclass(frozen=True, eq=False)
class SimulatedWorkloads:
    """What the simulator said of a set of workloads.

    Attributes:
        makespan_ns: float64 (systems, workloads).
        exposed_fraction: float64 (systems, workloads): fraction of the makespan in which a rank
            does not compute, mean over ranks.
        num_ranks: int64 (workloads,).
        failed: Workloads that could not run, with the reason.
    """

    makespan_ns: np.ndarray
    exposed_fraction: np.ndarray
    num_ranks: np.ndarray
    failed: tuple[str, ...]


def systems() -> dict[str, tuple[Topology, float, float]]:
    """Return the small clusters: topology, GB/s (2**30 bytes) per link, ns per hop."""
    return {
        "switch, 25 GB/s, 1 us": (Topology.SWITCH, 25.0, 1_000.0),
        "ring, 12 GB/s, 2 us": (Topology.RING, 12.0, 2_000.0),
        "fully connected, 50 GB/s, 0.5 us": (Topology.FULLY_CONNECTED, 50.0, 500.0),
        "switch, 1 GB/s, 30 us": (Topology.SWITCH, 1.0, 30_000.0),
    }


def simulate_stage(workloads: Sequence[Workload], label: str) -> SimulatedWorkloads:
    """Run every workload on every system, with the durations the traces carry."""
    makespans, shares, ranks, failed = [], [], [], []
    for workload in track(workloads, label, len(workloads)):
        try:
            results = [_simulated(workload, name) for name in systems()]
        except SimulationError as error:
            failed.append(f"{workload.source}: {error}")
            continue
        makespans.append([result.makespan_ns for result in results])
        shares.append(
            [
                float(np.mean(result.exposed_comm_ns / np.maximum(result.rank_finish_ns, 1)))
                for result in results
            ]
        )
        ranks.append(workload.num_ranks)
    shape = (-1, len(systems()))
    return SimulatedWorkloads(
        np.array(makespans, dtype=np.float64).reshape(shape).T,
        np.array(shares, dtype=np.float64).reshape(shape).T,
        np.array(ranks, dtype=np.int64),
        tuple(failed),
    )


def _simulated(workload: Workload, name: str) -> SimulationResult:
    """Run a workload on one of ``systems``, with the durations that its traces have."""
    topology, bandwidth, latency = systems()[name]
    network = NetworkConfig.single(topology, workload.num_ranks, bandwidth, latency)
    system = replace(
        SystemConfig.uniform("ring"), unsupported_collectives=UnsupportedCollectives.REPLAY
    )
    return simulate(workload, Cluster(network, system), compute=MeasuredCompute())


def simulation_parts(
    real: SimulatedWorkloads, synthetic: SimulatedWorkloads
) -> tuple[tuple[Distribution, ...], SystemTimes | None]:
    """Return the distributions on the first system, and the mean time on each system."""
    both = (("real test", real), ("synthetic", synthetic))
    if not all(part.num_ranks.size for _, part in both):
        return (), None
    first = next(iter(systems()))
    drawn = (
        Distribution(
            f"makespan on {first}",
            "ms",
            tuple(Sample(name, part.makespan_ns[0] / 1e6) for name, part in both),
            log=True,
        ),
        Distribution(
            f"share of time in which a rank does not compute, on {first}",
            "fraction of the time",
            tuple(Sample(name, part.exposed_fraction[0]) for name, part in both),
        ),
    )
    parallel = [part.num_ranks > 1 for _, part in both]
    if not all(mask.any() for mask in parallel):
        return drawn, None
    # The geometric mean, so that no single large job decides the figure.
    means = [
        np.exp(np.log(part.makespan_ns[:, mask]).mean(axis=1)) / 1e6
        for (_, part), mask in zip(both, parallel, strict=True)
    ]
    times = SystemTimes(
        tuple(systems()),
        tuple(map(float, means[0])),
        tuple(map(float, means[1])),
        "geometric mean of the makespan in ms, jobs of several ranks",
    )
    return drawn, times


SHOWN_RANKS = 4
LARGEST_TIMELINE = 2000


def can_be_drawn(data: GraphDataset) -> bool:
    """Return whether nodes have the operators and types that pictures are colored by."""
    return {"op", "type"} <= {attribute.name for attribute in data.schema.attributes}


def neighbors_of(data: GraphDataset, samples: Sequence[DAG]) -> tuple[Neighbors, ...]:
    """Return samples of several families, each beside the real job of its family nearest to it."""
    if not can_be_drawn(data):
        return ()
    real = [dag for dags in data.graphs.values() for dag in dags]
    found = nearest_real(real, samples, data.schema.measured_columns)
    return tuple(
        Neighbors(
            one.family,
            picture_of(data, samples[one.sample], "Sample"),
            picture_of(data, real[one.real], "Nearest real graph"),
            one.distance,
            one.usual,
            one.compared,
        )
        for one in found
    )


def timelines_of(
    data: GraphDataset, real: Sequence[DAG], samples: Sequence[DAG]
) -> tuple[Timeline, ...]:
    """Return what the ranks of a held-out job and of a sample most like it do, and when.

    Of the samples with several ranks that a held-out job of the same family, strategy and number of
    ranks can stand beside, the one of middling size is taken. They run on the first of ``systems``.

    Args:
        data: Data set with the schema.
        real: Held-out jobs; without any, the sample stands alone.
        samples: Samples.
    """
    if not data.schema.kind.has_traces or not samples or not can_be_drawn(data):
        return ()
    comparable = [dag for dag in samples if any(_same_kind(dag, one) for one in real)]
    # A sample that can be drawn, if possible of several ranks: the one of middling size.
    candidates = comparable or samples
    fits = [dag for dag in candidates if dag.num_nodes <= LARGEST_TIMELINE]
    several = [dag for dag in fits if 1 < float(dag.conditions.get("world_size", 1)) <= SHOWN_RANKS]
    ordered = sorted(several or fits or candidates[:1], key=lambda dag: dag.num_nodes)
    made = ordered[len(ordered) // 2]
    alike = [dag for dag in real if _same_kind(made, dag)]
    rows = nearest_real(alike, [made], data.schema.measured_columns, largest=LARGEST_TIMELINE)
    jobs = [*(("a real job", alike[one.real]) for one in rows), ("a sample", made)]
    try:
        return tuple(_timeline(data, dag, f"{title}{_of(dag)}") for title, dag in jobs)
    except LayerdagError:  # a job that the simulator does not take has no timeline
        return ()


def _same_kind(sample: DAG, real: DAG) -> bool:
    names = ("family", "strategy", "world_size")
    return [sample.conditions.get(name) for name in names] == [
        real.conditions.get(name) for name in names
    ]


def _of(dag: DAG) -> str:
    values = [
        str(dag.conditions[name]) for name in ("family", "strategy") if name in dag.conditions
    ]
    return f" ({', '.join(values)})" if values else ""


def _timeline(data: GraphDataset, dag: DAG, title: str) -> Timeline:
    workload = as_workload(data.schema.decode(dag)).workload
    result = _simulated(workload, next(iter(systems())))
    ranks = range(min(workload.num_ranks, SHOWN_RANKS))
    lanes = tuple(lane for rank in ranks for lane in _lanes(workload, result, rank))
    title = title[:1].upper() + title[1:]
    return Timeline(title, lanes, result.makespan_ns / 1e6, workload.num_ranks)


def _lanes(workload: Workload, result: SimulationResult, rank: int) -> Iterator[Lane]:
    trace = workload.traces[rank]
    start_N, end_N = (ticks_N / 1e6 for ticks_N in result.ticks(rank))
    names = np.array(trace.names(), dtype=object)[np.argsort(trace.id_N, kind="stable")]
    computes_N = result.nodes(rank).type_N == NodeType.COMP
    for word, mine_N in (("computes", computes_N), ("communicates", ~computes_N)):
        if mine_N.any():
            type_name = "COMP" if word == "computes" else "COMM_COLL"
            kinds = tuple(kind_of(str(name), type_name) for name in names[mine_N])
            yield Lane(f"rank {rank} {word}", start_N[mine_N], end_N[mine_N], kinds)


# What the surrogate must not see: the sum of the durations is the target, nearly.
HIDDEN_FROM_SURROGATE = "duration"


def transferred(
    data: GraphDataset,
    samples: Sequence[GeneratedGraph],
    *,
    families: Sequence[str] = ("boosting",),
    seeds: Sequence[int] = (0,),
) -> TransferReport:
    """Train surrogates of the label on real and on synthetic graphs, test on real ones.

    Args:
        data: Graphs that all have a label.
        samples: Graphs that all have a label.
        families: Of surrogates.
        seeds: Of the fits.
    """
    schema = data.schema
    hidden = [a.name for a in schema.attributes if a.name == HIDDEN_FROM_SURROGATE]
    train, made, test = (
        labeled(dags, schema, LABEL, hidden)
        for dags in (data.graphs["train"], [one.dag for one in samples], data.graphs["test"])
    )
    return evaluate_tstr(
        train,
        made,
        test,
        schema.sizes(),
        {name: FAMILIES[name] for name in families},
        seeds=tuple(seeds),
        conditions=(REAL, SYNTHETIC, SHUFFLED),
    )


SOURCES = ("real train", "real test", "synthetic")
LOGARITHMIC = ("nodes", "edges")
SHOWN = (
    "nodes",
    "edges",
    "layers",
    "mean_width",
    "width",
    "in_degree",
    "out_degree",
    "edge_span",
)


def structure_distributions(
    train: Sequence[DAG],
    test: Sequence[DAG],
    synthetic: Sequence[DAG],
    attributes: Sequence[AttributeView],
) -> tuple[Distribution, ...]:
    """Return the distributions of sizes, widths, degrees and spans."""
    metrics = {metric.name: metric for metric in descriptors(attributes)}
    result = []
    for name in SHOWN:
        histograms = histograms_of(name, (train, test, synthetic), attributes)
        samples = tuple(
            Sample(source, one.support_K, one.pooled()[0])
            for source, one in zip(SOURCES, histograms, strict=True)
        )
        metric = metrics[name]
        result.append(
            Distribution(metric.description, metric.unit, samples, log=name in LOGARITHMIC)
        )
    return tuple(result)


def attribute_shares(
    train: Sequence[DAG],
    test: Sequence[DAG],
    synthetic: Sequence[DAG],
    attributes: Sequence[AttributeView],
    vocabularies: Sequence[Sequence[str]],
) -> tuple[CategoryFractions, ...]:
    """Return the shares of the codes of each unordered attribute.

    Args:
        train: Real training graphs.
        test: Real test graphs.
        synthetic: Generated graphs.
        attributes: Name and kind of each attribute.
        vocabularies: Name of each code of each attribute, in column order.
    """
    result = []
    for view, names in zip(attributes, vocabularies, strict=True):
        if view.ordered:
            continue
        histograms = histograms_of(f"attribute:{view.name}", (train, test, synthetic), attributes)
        labels = tuple(_name(names, code) for code in histograms[0].support_K.tolist())
        shares = tuple(
            (source, one.pooled()[0]) for source, one in zip(SOURCES, histograms, strict=True)
        )
        result.append(CategoryFractions(view.name, labels, shares))
    return tuple(result)


def _name(names: Sequence[str], code: int) -> str:
    return names[code] if 0 <= code < len(names) else f"code {code}"


def summary_rows(
    structure: StructureReport,
    real_structure: StructureReport,
    novelty: Novelty,
    similarity: QualityReport,
    transfer: TransferReport | None,
) -> tuple[SummaryRow, ...]:
    """Return the lines of the summary table; the same as ``layerdag demo`` prints."""
    distances = [row for row in similarity.rows if row.is_distance]
    ratios = np.array([row.ratio for row in distances if row.ratio is not None])
    matched = [row.matched_ratio for row in distances if row.matched_ratio is not None]
    rows = [
        SummaryRow(
            "valid graphs",
            percent(structure.validity),
            percent(real_structure.validity),
            "every rule of severity error is kept",
        ),
        SummaryRow(
            "layer-consistent graphs",
            percent(structure.pass_rate["layer-consistent"]),
            percent(real_structure.pass_rate["layer-consistent"]),
            "every node of layer l+1 has a parent in layer l",
        ),
        SummaryRow(
            "valid, unique and novel",
            f"{percent(novelty.vun)} {percents(novelty.vun_interval)}",
            "",
            f"{percent(novelty.copied)} copies; among real held-out graphs "
            f"{percent(novelty.copied_real)}",
        ),
    ]
    for name in ("nodes", "edges", "layers", "width", "in_degree", "out_degree"):
        row = similarity[name]
        note = f"ratio {number(row.ratio, 2)}; {number(row.matched_ratio, 2)} at equal count"
        rows.append(
            SummaryRow(
                f"W1 of {row.metric.description}",
                number(row.generated.value),
                number(row.reference.value),
                note,
            )
        )
    if ratios.size:
        median = float(np.median(matched)) if matched else None
        note = (
            f"over {ratios.size} metrics; largest {number(float(ratios.max()), 2)}; "
            f"median at equal count {number(median, 2)}"
        )
        rows.append(SummaryRow("median ratio", number(float(np.median(ratios)), 2), "1", note))
    bound = similarity["classifier_bound"]
    rows.append(
        SummaryRow(
            "distinguished from real graphs by a classifier",
            number(bound.generated.value, 2),
            number(bound.reference.value, 2),
            "lower bound of the Jensen-Shannon distance: 0 indistinguishable, 1 distinct",
        )
    )
    rows += job_rows(similarity)
    if transfer is not None:
        rows += _transfer_rows(transfer)
    return tuple(rows)


def job_rows(similarity: QualityReport) -> Iterator[SummaryRow]:
    """Yield how many jobs keep the rules of whole steps, and how well trees tell them apart."""
    known = {row.metric.name: row for row in similarity.rows if not row.generated.error}
    rules, *classifiers = (known.get(metric.name) for metric in JOB_METRICS)
    if rules is not None:
        yield SummaryRow(
            rules.metric.description,
            _kept(rules.generated),
            _kept(rules.reference),
            "what no step of PyTorch does; 'layerdag validate' names the nodes",
        )
    for row in classifiers:
        if row is not None:
            yield SummaryRow(
                row.metric.description.partition(",")[0],
                _auroc(row.generated),
                _auroc(row.reference),
                "0.5 is indistinguishable; beside it real training jobs",
            )


def _kept(found: MetricResult) -> str:
    return f"{found.breakdown['kept']:.0f} of {found.breakdown['jobs']:.0f}"


def _auroc(found: MetricResult) -> str:
    value = number(found.value, 2)
    return value if found.interval is None else f"{value} {interval(found.interval)}"


def _transfer_rows(report: TransferReport) -> list[SummaryRow]:
    rows = []
    for family in dict.fromkeys(row.family for row in report.rows):
        by_condition = {row.condition: row for row in report.rows if row.family == family}
        if not {REAL, SYNTHETIC} <= set(by_condition):
            continue
        note = f"tested on {report.tested_on} real graphs"
        if SHUFFLED in by_condition:
            floor = by_condition[SHUFFLED].scores["pearson"].mean
            note += f"; with shuffled targets {number(floor, 2)}"
        for score in ("pearson", "spearman"):
            rows.append(
                SummaryRow(
                    f"surrogate's {score.capitalize()} ({family})",
                    number(by_condition[SYNTHETIC].scores[score].mean),
                    number(by_condition[REAL].scores[score].mean),
                    note if score == "pearson" else "",
                )
            )
    return rows
