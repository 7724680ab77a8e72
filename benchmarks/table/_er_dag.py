"""Directo's stress test: dense random DAGs, of which layered models are said to fail.

A graph has 20 to 79 nodes, and each pair of them is an edge from the earlier to the later node with
probability 0.6. A sample is valid if it has no cycle and its density p is near 0.6: with
W = (p - 0.6)^2 / (p (1 - p)), the probability of a larger chi-squared value (one degree of freedom)
exceeds 0.9, as in Directo's public code (commit 88c8532).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import chi2

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.graph.attributed_graph import SPLITS, AttributedGraph
from layerdag.runtime.rng import numpy_generator

from ._base import Options, Task, make_runs
from ._learners import BASELINES, REFERENCES, Learner, fit_fast
from ._page import Words, page_of_tasks
from ._runs import Record, Store

TRAIN, VAL, TEST = 128, 32, 40  # as Directo has
DENSITY = 0.6
LEAST, MOST = 20, 79
SIGNIFICANCE = 0.9

_FREE: dict[str, Any] = {
    "depth": 2,
    "width": 64,
    "predict_out_degree": False,
    "constraints": {"out_degree": "unlimited"},
    "encoder": {"dropout": 0.0, "token_dropout": 0.0},
    "copies": 4,
}
_SHARP = {**_FREE, "sampling": {"temperature": 0.7}}
LEARNERS = (
    Learner("fast", "`fast`", fit_fast, (_FREE, {**_FREE, "learning_rate": 1e-3}, _SHARP)),
    Learner("fast_longer", "`fast`, three times as long", fit_fast, (_SHARP,), budget=3.0),
    Learner("fast_default", "`fast`, default settings", fit_fast),
    *REFERENCES,
    *BASELINES,
)


def er_dag(rng: np.random.Generator, name: str) -> AttributedGraph:
    """Draw one graph."""
    nodes = int(rng.integers(LEAST, MOST + 1))
    edge_NN = np.tril(rng.random((nodes, nodes)) < DENSITY, k=-1)
    target_E, source_E = edge_NN.nonzero()
    return AttributedGraph(
        name=name,
        categories={"kind": ["node"] * nodes},
        numbers={},
        edge_index_2E=np.stack([source_E, target_E]),
        edge_type_E=np.zeros(source_E.size, dtype=np.int64),
        conditions={},
        vocabularies={"kind": ("node",)},
    )


def is_valid(dag: DAG) -> bool:
    """Return whether the density is near that of the generator; a DAG has no cycle."""
    pairs = dag.num_nodes * (dag.num_nodes - 1) / 2
    if pairs == 0:
        return False
    density = dag.num_edges / pairs
    statistic = (density - DENSITY) ** 2 / (density * (1 - density) + 1e-6)
    return bool(1 - chi2.cdf(statistic, df=1) > SIGNIFICANCE)


def load(train: int | None, test: int = TEST) -> GraphDataset:
    """Return the data set; graph i of a part depends on the part and i alone."""
    counts = dict(zip(SPLITS, (train or TRAIN, VAL, test), strict=True))
    parts = {
        split: [
            er_dag(numpy_generator(0, "er_dag", split, i), f"{split}/{i}") for i in range(count)
        ]
        for split, count in counts.items()
    }
    return GraphDataset.build("er_dag", "flow", parts)


def _others(count: int) -> Sequence[DAG]:
    """Return graphs that come after those of the test part."""
    return load(1, TEST + count).graphs["test"][TEST:]


class ErDag:
    """One task."""

    name = "er-dag"
    about = "dense random DAGs, on which layered models are said to fail"

    def make(self, store: Store, options: Options) -> Iterator[Record]:
        """Make the runs."""
        task = Task("er", load, is_valid, _others)
        yield from make_runs(store, [task], LEARNERS, options)

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        titles = {learner.name: learner.title for learner in LEARNERS}
        return page_of_tasks(self.name, records, titles, WORDS)


WORDS = Words(
    title="Dense random DAGs",
    before=(
        "Directo's stress test (arXiv 2506.16404): 20 to 79 nodes without attributes, each pair "
        "joined by an edge with probability 0.6. A sample is valid if it has no cycle and its "
        "density is near 0.6, by the test of Directo's public code. As there, 128 graphs are for "
        "training, 32 for validation and 40 for test."
    ),
    tasks={},
    published=(
        "Published is the V.U.N. of the Directo paper. **Not comparable** as a ranking: our fits "
        "are short, and none of our models can make a cycle, while Directo's can."
    ),
    figures={"er": {"reference": "21.5", "diffusion": "94.0 (Directo)"}},
)
