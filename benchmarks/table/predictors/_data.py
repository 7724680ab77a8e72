"""Splits of the DGRL benchmark, and others on the same graphs.

Shape letters: B graphs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.dgrl import AMP, read_family, read_networks
from layerdag.graph.attributed_graph import LABEL, AttributedGraph, Split
from layerdag.runtime.rng import numpy_generator

LABELS = ("cortex", "630gpu", "640gpu")
FIGURES = ("gain", "pm", "bw")
# As `CG_data_processor.py` of Graph-COM/Benchmark_for_DGRL_in_Hardwares has them.
KNOWN = ("densenets", "mnasnets", "mobilenetv2s", "mobilenetv3s", "nasbench201s")
UNKNOWN = ("proxylessnass", "resnets", "squeezenets")


@dataclass(frozen=True)
class Part:
    """Test graphs of one kind.

    Attributes:
        name: Of the kind, such as a family of networks.
        kind: "id" if training graphs are of the same kind, else "ood".
        dags: The graphs.
    """

    name: str
    kind: str
    dags: Sequence[DAG]


@dataclass(frozen=True)
class Problem:
    """What surrogates learn from and are judged by.

    Attributes:
        train: Training graphs.
        parts: Test graphs.
        sizes: Codes of the graphs.
    """

    train: Sequence[DAG]
    parts: Sequence[Part]
    sizes: GraphSizes

    def known(self, label: str) -> tuple[list[DAG], np.ndarray]:
        """Return the training graphs that have a label, and the labels."""
        return with_label(self.train, label)


def with_label(dags: Sequence[DAG], label: str) -> tuple[list[DAG], np.ndarray]:
    """Return the graphs that have a label, and the labels, float64 (B,)."""
    kept = [dag for dag in dags if label in dag.conditions]
    return kept, np.array([float(dag.conditions[label]) for dag in kept])


@cache
def networks(folder: Path) -> tuple[AttributedGraph, ...]:
    """Return the graphs of a family with all labels, in the order of its files."""
    return tuple(read_networks(folder, LABELS))


def dgrl_split(root: Path, train: int | None) -> Problem:
    """Return the benchmark's own split.

    Of each of five families the first 90 % are for training, the next 5 % for validation, the rest
    for test; of three others the first tenth is for test. Labels are not looked at.

    Args:
        root: Folder of the families.
        train: Training graphs of each family, drawn from the first 90 %.
    """
    learned: list[AttributedGraph] = []
    tests: dict[str, tuple[str, Sequence[AttributedGraph]]] = {}
    for name in KNOWN:
        graphs = networks(root / name)
        learned += drawn(graphs[: ceil(0.9 * len(graphs))], train, name)
        tests[name] = ("id", graphs[ceil(0.95 * len(graphs)) :])
    for name in UNKNOWN:
        graphs = networks(root / name)
        tests[name] = ("ood", graphs[: ceil(0.1 * len(graphs))])
    return encoded(learned, tests)


def every_family(root: Path, train: int | None, test: int) -> Problem:
    """Return so many graphs of the first four fifths of each family, and tests of the last."""
    learned: list[AttributedGraph] = []
    tests: dict[str, tuple[str, Sequence[AttributedGraph]]] = {}
    for name in families(root):
        graphs = networks(root / name)
        cut = ceil(0.8 * len(graphs))
        learned += drawn(graphs[:cut], train, name)
        tests[name] = ("id", drawn(graphs[cut:], test, name))
    return encoded(learned, tests)


def without_family(root: Path, left_out: str, train: int | None, test: int) -> Problem:
    """Return so many graphs of each other family, and tests of the one that is left out."""
    learned = [
        graph
        for name in families(root)
        if name != left_out
        for graph in drawn(networks(root / name), train, name)
    ]
    return encoded(learned, {left_out: ("ood", drawn(networks(root / left_out), test, left_out))})


def families(root: Path) -> list[str]:
    """Return the names of the families in a folder."""
    return sorted(path.name for path in root.iterdir() if any(path.glob("num-node-list.csv*")))


def amplifiers(folder: Path, train: int | None) -> Problem:
    """Return the benchmark's own split of amplifiers, drawn as its code draws it.

    Of those with three stages 90 % are for training, 5 % for validation and the rest for test; 500
    of those with two stages are for test.

    Args:
        folder: Of AMP.
        train: How many of the training graphs; None: all.
    """
    by_label = {label: read_family(folder, AMP, label, None) for label in FIGURES}
    graphs = [
        replace(rows[0], conditions=_joined(dict(zip(FIGURES, rows, strict=True))))
        for rows in zip(*by_label.values(), strict=True)
    ]
    stage_B = np.loadtxt(folder / "amp-stage.csv", dtype=np.int64)
    two, three = (np.flatnonzero(stage_B == stage).tolist() for stage in (2, 3))
    rng = np.random.RandomState(123)  # the benchmark's, in its order
    rng.shuffle(three)
    rng.shuffle(two)
    cuts = int(0.9 * len(three)), int(0.9 * len(three)) + int(0.05 * len(three))
    tests = {
        "three stages": ("id", [graphs[i] for i in three[cuts[1] :]]),
        "two stages": ("ood", [graphs[i] for i in two[:500]]),
    }
    return encoded([graphs[i] for i in three[: cuts[0]]][:train], tests)


def _joined(graphs: Mapping[str, AttributedGraph]) -> dict[str, float | str]:
    """Return the conditions of one graph with each label by its name."""
    found: dict[str, float | str] = {}
    for label, graph in graphs.items():
        found |= {k: v for k, v in graph.conditions.items() if k != LABEL}
        if LABEL in graph.conditions:
            found[label] = graph.conditions[LABEL]
    return found


def drawn(graphs: Sequence[AttributedGraph], count: int | None, name: str) -> list[AttributedGraph]:
    """Return so many of the graphs at random, in their order; all if there are fewer."""
    order = numpy_generator(0, "drawn", name).permutation(len(graphs))[:count]
    return [graphs[i] for i in sorted(order.tolist())]


def encoded(
    train: Sequence[AttributedGraph], tests: Mapping[str, tuple[str, Sequence[AttributedGraph]]]
) -> Problem:
    """Encode graphs by what the training graphs have; columns of one value are left out."""
    names = [name for name in train[0].numbers if _varies(train, name)]
    keep = _keeper(names)
    data = GraphDataset.build("dgrl", "flow", {"train": [keep(graph) for graph in train]})
    parts = []
    for name, (kind, graphs) in tests.items():
        given: dict[Split, list[AttributedGraph]] = {"test": [keep(graph) for graph in graphs]}
        one = GraphDataset.with_schema(name, data.schema, given)
        parts.append(Part(name, kind, one.graphs["test"]))
    return Problem(data.graphs["train"], parts, data.schema.sizes())


def _varies(graphs: Sequence[AttributedGraph], name: str) -> bool:
    values = np.concatenate([graph.numbers[name] for graph in graphs])
    return bool(values.min() < values.max())


def _keeper(names: Sequence[str]) -> Callable[[AttributedGraph], AttributedGraph]:
    """Return what leaves other numbers of nodes out."""

    def keep(graph: AttributedGraph) -> AttributedGraph:
        return replace(graph, numbers={name: graph.numbers[name] for name in names})

    return keep
