"""Rules on sets of DAGs, and how many generated graphs are valid, unique and novel (V.U.N.).

Layer laws: LayerDAG (arXiv 2411.02322), section 3.1. A sampled graph lists its nodes layer by
layer; a node whose longest-path layer is smaller than that of a node listed before it has drifted:
none of its parents is in the layer before.

V.U.N. is the figure of SPECTRE (Martinkus et al., ICML 2022, arXiv 2204.01613), which DiGress
(Vignac et al., ICLR 2023) and GraphGUIDE (Tseng et al., 2023) report. A graph is *unique* if it is
the first of its isomorphism class among the generated graphs, and *novel* if no training graph is
of its class. Classes are those of the Weisfeiler-Lehman hash of the attributed, directed graph;
graphs with one hash count as equal, which errs on the side of a repetition. Numbers count by bin.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from layerdag.dag.dag import DAG, graph_hashes
from layerdag.dag.graph_set import GraphSet
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import CodedSamples, coded
from layerdag.errors import GraphError, UsageError
from layerdag.graph.topology import longest_path_layers, pointers
from layerdag.runtime.settings import did_you_mean
from layerdag.schema.schema import GraphSchema
from layerdag.statistics import Interval
from layerdag.validation.rules import Finding, Rule, Severity, rule_table


@dataclass(frozen=True, eq=False)
class DepthRow:
    """Figures of the nodes in one depth bin.

    Attributes:
        consistent: Share of them that keep "layer-consistent".
        seen: Share that keep "arity-seen" and "source-seen"; None without training statistics.
    """

    first_layer: int
    last_layer: int
    nodes: int
    consistent: float
    seen: float | None


class DepthCounts:
    """Counts of nodes by their layer."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._count_CL = np.zeros((3, 0), dtype=np.int64)
        self._knows_training = False

    def add(self, layer_N: np.ndarray, bad_nodes: dict[str, np.ndarray]) -> None:
        """Count nodes; those of layer -1, of cyclic graphs, are left out."""
        wrong_N = np.zeros(layer_N.size, dtype=bool)
        self._knows_training = "arity-seen" in bad_nodes
        if self._knows_training:
            wrong_N = bad_nodes["arity-seen"] | bad_nodes["source-seen"]
        inside_N = layer_N >= 0
        kept = [inside_N, inside_N & bad_nodes["layer-consistent"], inside_N & wrong_N]
        size = max(self._count_CL.shape[1], int(layer_N.max(initial=-1)) + 1)
        more = size - self._count_CL.shape[1]
        self._count_CL = np.pad(self._count_CL, ((0, 0), (0, more))) + np.stack(
            [np.bincount(layer_N[which], minlength=size) for which in kept]
        )

    def rows(self) -> Iterator[DepthRow]:
        """Yield the figures of each depth bin."""
        nodes_L, inconsistent_L, unseen_L = self._count_CL
        total = int(nodes_L.sum())
        if not total:
            return
        # The last layer of a bin is the quantile of the nodes' layers, the higher one of two.
        place_R = np.ceil(np.linspace(0, 1, self._rows + 1)[1:] * (total - 1))
        cuts = np.unique(np.searchsorted(np.cumsum(nodes_L), place_R, side="right"))
        first = 0
        for last in cuts.tolist():
            here = slice(first, last + 1)
            nodes = int(nodes_L[here].sum())
            unseen = float(1 - unseen_L[here].sum() / nodes) if self._knows_training else None
            consistent = float(1 - inconsistent_L[here].sum() / nodes)
            yield DepthRow(first, last, nodes, consistent, unseen)
            first = last + 1


GRAPH_RULES = rule_table(
    Rule(
        "edge-range",
        Severity.ERROR,
        "An edge names a node that the graph does not have.",
        "Number the nodes of a graph from 0 without gaps.",
    ),
    Rule("acyclic", Severity.ERROR, "The edges contain a cycle.", "Remove the closing edge."),
    Rule(
        "layer-consistent",
        Severity.ERROR,
        "A node listed in a layer has no parent in the layer before.",
        "List nodes in layer order (DAG.in_layer_order), or repair the sampler.",
    ),
    Rule("no-double-edge", Severity.ERROR, "An edge occurs twice.", "Keep one of each edge."),
    Rule(
        "attribute-range",
        Severity.ERROR,
        "An attribute code lies outside the schema.",
        "Encode with the schema that the graphs are checked against.",
    ),
    Rule(
        "position-range",
        Severity.ERROR,
        "A position inside a bin lies outside [0, 1).",
        "Draw positions uniformly from [0, 1).",
    ),
    Rule(
        "not-empty", Severity.ERROR, "The graph has no node.", "Drop the graph or sample it again."
    ),
    Rule(
        "arity-seen",
        Severity.WARNING,
        "A node has more parents than any node of its kind in the training graphs.",
        "Limit in-degrees by kind, or train longer.",
    ),
    Rule(
        "source-seen",
        Severity.WARNING,
        "A node starts its graph although no node of its kind does in the training graphs.",
        "Give the node a parent, or train longer.",
    ),
    Rule(
        "connected",
        Severity.WARNING,
        "The graph falls into several weakly connected parts.",
        "Compare the share with that of real graphs; traces may have several parts.",
    ),
)


ERRORS = tuple(name for name, rule in GRAPH_RULES.items() if rule.severity is Severity.ERROR)


@dataclass(frozen=True, eq=False)
class StructureReport:
    """Which rules a set of graphs keeps.

    Attributes:
        pass_rate: For each rule id, the fraction of graphs that keep it.
        valid_B: True where a graph keeps every rule of severity ERROR.
        findings: One for each broken rule and graph.
        by_depth: Figures along the depth, so that drift shows.
    """

    graphs: int
    pass_rate: dict[str, float]
    valid_B: np.ndarray
    findings: tuple[Finding, ...]
    by_depth: tuple[DepthRow, ...]

    @property
    def validity(self) -> float:
        """Fraction of graphs that keep every rule of severity ERROR."""
        return float(self.valid_B.mean())

    def to_dict(self) -> dict[str, object]:
        """Return the fields by name for JSON; files have "share" for ``pass_rate``."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {("share" if name == "pass_rate" else name): found[name] for name in found}


def check_structure(
    dags: Sequence[DAG],
    training: GraphStatistics | None = None,
    names: Sequence[str] | None = None,
    depth_rows: int = 5,
) -> StructureReport:
    """Judge graphs that may be wrong in any way; nothing here raises because of their content.

    Args:
        dags: Graphs whose nodes are listed layer by layer.
        training: Statistics of the training graphs; without them the rules "attribute-range",
            "arity-seen" and "source-seen" are not applied.
        names: What to call each graph in findings; numbers by default.
        depth_rows: Number of depth bins of ``by_depth``.

    Raises:
        UsageError: If there is no graph.
        DataError: If graphs have different numbers of attributes.
    """
    tally = StructureTally(training, depth_rows)
    tally.add(dags, names)
    return tally.report()


class StructureTally:
    """``check_structure`` of graphs that come some at a time."""

    def __init__(self, training: GraphStatistics | None = None, depth_rows: int = 5) -> None:
        self._training = training
        self._parts: list[dict[str, np.ndarray]] = []
        self._findings: list[Finding] = []
        self._depth = DepthCounts(depth_rows)
        self._graphs = 0

    def add(self, dags: Sequence[DAG], names: Sequence[str] | None = None) -> np.ndarray:
        """Judge the next graphs; return which keep every rule of severity ERROR.

        Raises:
            UsageError: If there is no graph.
            DataError: If graphs have different numbers of attributes.
        """
        whole = GraphSet.from_dags(dags)
        graphs, outside_B = _without_outside_edges(whole)
        layer_N, cyclic_B = _layers(graphs)
        # One running maximum: each graph is lifted above all layers of those before it.
        lift = int(layer_N.max(initial=0)) + 2
        lifted_N = layer_N + graphs.graph_N * lift
        bad_nodes = {
            "layer-consistent": (np.maximum.accumulate(lifted_N) > lifted_N),
            "position-range": ~np.all((whole.u_NA >= 0) & (whole.u_NA < 1), axis=1),
        }
        if self._training is not None:
            bad_nodes |= _against_training(graphs, self._training)
        key_E = graphs.edge_index_2E[0] * max(graphs.num_nodes, 1) + graphs.edge_index_2E[1]
        _, first = np.unique(key_E, return_index=True)
        bad_graphs = {
            "edge-range": outside_B,
            "acyclic": cyclic_B,
            "no-double-edge": np.bincount(graphs.graph_E[first], minlength=graphs.num_graphs)
            < graphs.edges_B,
            "not-empty": graphs.nodes_B == 0,
            "connected": _parts(graphs) > 1,
        }
        for name, bad_N in bad_nodes.items():
            bad_graphs[name] = np.bincount(graphs.graph_N[bad_N], minlength=len(dags)) > 0
        if names is None:
            names = [f"graph {i}" for i in range(self._graphs, self._graphs + len(dags))]
        self._parts.append(bad_graphs)
        self._findings += _findings(graphs, bad_graphs, bad_nodes, names)
        self._depth.add(layer_N, bad_nodes)
        self._graphs += len(dags)
        return _valid(bad_graphs)

    def report(self) -> StructureReport:
        """Return the verdict on all of them."""
        bad_graphs = {
            name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]
        }
        order = {name: place for place, name in enumerate(bad_graphs)}
        return StructureReport(
            graphs=self._graphs,
            pass_rate={
                name: float(1 - bad_graphs[name].mean())
                for name in GRAPH_RULES
                if name in bad_graphs
            },
            valid_B=_valid(bad_graphs),
            findings=tuple(sorted(self._findings, key=lambda found: order[found.rule.id])),
            by_depth=tuple(self._depth.rows()),
        )


def _valid(bad_graphs: dict[str, np.ndarray]) -> np.ndarray:
    errors = [bad for name, bad in bad_graphs.items() if name in ERRORS]
    valid_B: np.ndarray = ~np.any(errors, axis=0)
    return valid_B


def _without_outside_edges(graphs: GraphSet) -> tuple[GraphSet, np.ndarray]:
    """Return the set without edges that leave their graph, and which graphs had any.

    The layers that graphs carry are left out: they are to be checked, and lack those edges.
    """
    first_E = graphs.node_ptr[:-1][graphs.graph_E]
    last_E = graphs.node_ptr[1:][graphs.graph_E]
    inside_E = ((graphs.edge_index_2E >= first_E) & (graphs.edge_index_2E < last_E)).all(axis=0)
    edges_B = np.bincount(graphs.graph_E[inside_E], minlength=graphs.num_graphs)
    kept = replace(
        graphs,
        edge_index_2E=graphs.edge_index_2E[:, inside_E],
        edge_type_E=graphs.edge_type_E[inside_E],
        edge_ptr=pointers(edges_B),
        dags=(),
    )
    return kept, edges_B < graphs.edges_B


def _layers(graphs: GraphSet) -> tuple[np.ndarray, np.ndarray]:
    """Return (layer_N, cyclic_B); nodes of cyclic graphs have layer -1."""
    cyclic_B = np.zeros(graphs.num_graphs, dtype=bool)
    try:
        return graphs.layer_N, cyclic_B
    except GraphError:
        pass
    layer_N = np.full(graphs.num_nodes, -1, dtype=np.int64)
    for graph, (first, last) in enumerate(zip(graphs.node_ptr, graphs.node_ptr[1:], strict=False)):
        edges = slice(graphs.edge_ptr[graph], graphs.edge_ptr[graph + 1])
        try:
            edge_index_2E = graphs.edge_index_2E[:, edges] - first
            layer_N[first:last] = longest_path_layers(int(last - first), edge_index_2E)
        except GraphError:
            cyclic_B[graph] = True
    return layer_N, cyclic_B


def _parts(graphs: GraphSet) -> np.ndarray:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = graphs.num_nodes
    ones_E = np.ones(graphs.edge_index_2E.shape[1], dtype=np.int8)
    if size == 0:
        return np.zeros(graphs.num_graphs, dtype=np.int64)
    matrix = coo_array((ones_E, tuple(graphs.edge_index_2E)), shape=(size, size))
    count, part_N = connected_components(matrix.tocsr(), directed=False)
    graph_of_part = np.zeros(count, dtype=np.int64)
    graph_of_part[part_N] = graphs.graph_N
    return np.bincount(graph_of_part, minlength=graphs.num_graphs)


def _against_training(graphs: GraphSet, training: GraphStatistics) -> dict[str, np.ndarray]:
    codes_A = np.array([len(counts) for counts in training.attributes])
    outside_N = ((graphs.x_NA < 0) | (graphs.x_NA >= codes_A)).any(axis=1)
    most_K = np.array([max((d for d, _ in pairs), default=0) for pairs in training.in_degrees])
    least_K = np.array([min((d for d, _ in pairs), default=0) for pairs in training.in_degrees])
    kind_N = np.clip(graphs.x_NA[:, 0], 0, len(most_K) - 1)
    degree_N = graphs.in_degree_N
    return {
        "attribute-range": outside_N,
        "arity-seen": degree_N > most_K[kind_N],
        "source-seen": (degree_N == 0) & (least_K[kind_N] > 0),
    }


def _findings(
    graphs: GraphSet,
    bad_graphs: dict[str, np.ndarray],
    bad_nodes: dict[str, np.ndarray],
    names: Sequence[str],
) -> list[Finding]:
    found = []
    for name, bad_B in bad_graphs.items():
        for graph in np.flatnonzero(bad_B).tolist():
            node, count = None, 1
            if name in bad_nodes:
                first = int(graphs.node_ptr[graph])
                nodes = np.flatnonzero(bad_nodes[name][first : graphs.node_ptr[graph + 1]])
                node, count = int(nodes[0]), nodes.size
            what = GRAPH_RULES[name].what.rstrip(".")
            found.append(Finding(GRAPH_RULES[name], names[graph], node, what, count))
    return found


ValidityRule = str | Callable[[DAG], bool]
"""Name of a rule in ``GRAPH_RULES``, or a function that says whether a graph is valid."""

_OF_TRAINING = ("attribute-range", "arity-seen", "source-seen")


@dataclass(frozen=True)
class Proportion:
    """So many of the graphs."""

    count: int
    total: int

    @property
    def fraction(self) -> float:
        """Count / total."""
        return self.count / self.total

    @property
    def interval(self) -> Interval:
        """Wilson's 95 % interval of the fraction."""
        found = Interval.wilson(self.fraction, self.total)
        return Interval(max(found.low, 0.0), min(found.high, 1.0))

    def to_dict(self) -> dict[str, Any]:
        """Return count, total, fraction and interval."""
        ends = [self.interval.low, self.interval.high]
        return {
            "count": self.count, "total": self.total, "fraction": self.fraction, "interval": ends,
        }  # fmt: skip

    def __str__(self) -> str:
        """Return the fraction with its interval."""
        low, high = self.interval.low, self.interval.high
        return f"{self.fraction:.1%} [{low:.0%}, {high:.0%}]"


@dataclass(frozen=True)
class VUN:
    """Valid, unique and novel graphs among the generated ones.

    Attributes:
        valid: Graphs that keep the rules.
        unique: Graphs that are the first of their isomorphism class.
        novel: Graphs of whose class no training graph is.
        novel_real: The same as ``novel`` of real graphs that are not in the training part; None
            without any.
    """

    valid: Proportion
    unique: Proportion
    novel: Proportion
    vun: Proportion
    novel_real: Proportion | None = None

    def __repr__(self) -> str:
        """Return the counts."""
        counts = ("valid", "unique", "novel", "vun")
        told = ", ".join(f"{name} {getattr(self, name).count:,}" for name in counts)
        return f"VUN({told} of {self.vun.total:,})"

    def to_dict(self) -> dict[str, Any]:
        """Return each proportion as plain data."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: None if each is None else each.to_dict() for name, each in found.items()}

    def __str__(self) -> str:
        """Return one line for each proportion."""
        real = "" if self.novel_real is None else f"; of real test graphs {self.novel_real}"
        return "\n".join(
            f"{name:<7} {getattr(self, name)}{real if name == 'novel' else ''}"
            for name in ("valid", "unique", "novel", "vun")
        )


def vun(
    train: GraphDataset | Sequence[DAG],
    generated: Iterable[Any],
    rules: Iterable[ValidityRule] | None = None,
    *,
    held_out: Sequence[DAG] = (),
    without: Sequence[str] = (),
) -> VUN:
    """Return how many generated graphs are valid, unique, novel, and all three.

    Args:
        train: A data set, whose training graphs count, or graphs of one schema.
        generated: Graphs of any kind, where a data set says what the codes are: samples, networkx,
            ``AttributedGraph``, paths. One with a cycle, or with a word that the data set lacks, is
            neither valid nor unique nor novel.
        rules: What a valid graph keeps: names of ``GRAPH_RULES`` and functions of a DAG. None:
            every rule of severity error. A cycle is never valid.
        held_out: Real graphs beside which novelty is seen; of a data set its test graphs.
        without: Names of node attributes that do not count, such as measured durations; needs a
            data set.

    Raises:
        UsageError: If there is no training or generated graph, or a rule or attribute is unknown.
    """
    if not isinstance(train, GraphDataset):
        return vun_of_codes(train, coded(generated, None), rules, held_out=held_out)
    return vun_of_codes(
        train.graphs["train"],
        coded(generated, train.schema, train.renamed),
        rules,
        held_out=held_out or train.graphs["test"],
        schema=train.schema,
        without=without,
    )


def novelty(
    train: GraphDataset | Sequence[DAG], generated: Iterable[Any], *, without: Sequence[str] = ()
) -> Proportion:
    """Return how many generated graphs no training graph is isomorphic to; see ``vun``."""
    return vun(train, generated, without=without).novel


def vun_of_codes(
    train: Sequence[DAG],
    samples: CodedSamples,
    rules: Iterable[ValidityRule] | None = None,
    *,
    held_out: Sequence[DAG] = (),
    schema: GraphSchema | None = None,
    without: Sequence[str] = (),
) -> VUN:
    """Return ``vun`` of samples in codes."""
    if not train or not samples.dags:
        raise UsageError("V.U.N. needs training graphs and generated graphs; one set is empty.")
    columns = _columns(schema, without)
    known = set(_hashes(train, columns))
    is_graph_B = np.array([dag is not None for dag in samples.dags])
    total, usable = len(is_graph_B), samples.usable
    words = np.full(total, "", dtype=object)
    words[is_graph_B] = _hashes(usable, columns)
    first_B = np.zeros(total, dtype=bool)
    first_B[np.unique(words.astype(str), return_index=True)[1]] = True
    valid_B = np.zeros(total, dtype=bool)
    valid_B[is_graph_B] = _keeps_rules(usable, rules, train, schema) if usable else []
    unique_B = first_B & is_graph_B
    novel_B = is_graph_B & np.array([word not in known for word in words])
    real = [word not in known for word in _hashes(held_out, columns)]
    return VUN(
        valid=Proportion(int(valid_B.sum()), total),
        unique=Proportion(int(unique_B.sum()), total),
        novel=Proportion(int(novel_B.sum()), total),
        vun=Proportion(int((valid_B & unique_B & novel_B).sum()), total),
        novel_real=Proportion(sum(real), len(real)) if real else None,
    )


def _columns(schema: GraphSchema | None, without: Sequence[str]) -> list[int]:
    names = [attribute.name for attribute in schema.attributes] if schema else []
    for name in without:
        if name not in names:
            raise UsageError(
                f"There is no node attribute '{name}'.{did_you_mean(name, names)} Known: "
                f"{', '.join(names) or 'none without a data set'}."
            )
    return [names.index(name) for name in without]


def _hashes(dags: Sequence[DAG], columns: Sequence[int]) -> list[str]:
    if not columns:
        return list(graph_hashes(dags))
    return list(graph_hashes(dag.without_columns(columns) for dag in dags))


def _keeps_rules(
    dags: Sequence[DAG],
    rules: Iterable[ValidityRule] | None,
    train: Sequence[DAG],
    schema: GraphSchema | None,
) -> np.ndarray:
    chosen = list(ERRORS if rules is None else rules)
    names = [rule for rule in chosen if isinstance(rule, str)]
    for name in names:
        if name not in GRAPH_RULES:
            raise UsageError(
                f"There is no rule '{name}' for graphs.{did_you_mean(name, GRAPH_RULES)} Known: "
                f"{', '.join(GRAPH_RULES)}."
            )
    statistics = None
    if schema is not None and (rules is None or set(names) & set(_OF_TRAINING)):
        statistics = GraphStatistics.measure(train, schema.sizes())
    tally = StructureTally(statistics)
    tally.add(dags, [str(number) for number in range(len(dags))])
    kept_B = np.ones(len(dags), dtype=bool)
    for finding in tally.report().findings:
        kept_B[int(finding.where)] &= finding.rule.id not in names
    for rule in chosen:
        if not isinstance(rule, str):
            kept_B &= np.array([bool(rule(dag)) for dag in dags])
    return kept_B
