"""The data sets: operators and edges alone, so that every generator can take part."""

from collections.abc import Callable, Sequence
from functools import cache, partial

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.dgrl import load_dgrl
from layerdag.datasets.settings import CorpusConfig, DgrlConfig, TpuTileConfig
from layerdag.datasets.tpu_tile import load_tpu_tile
from layerdag.graph.attributed_graph import SPLITS, Split
from layerdag.schema.schema import GraphSchema

from .._base import Folders, Task
from ._figures import rule_of, similarity

DRAWS = 1
AMP_GRAPHS, NA_GRAPHS, MOST_NODES = 2000, 600, 160
BUDGETS = {"jobs": 3.0}
"""Times the seconds of the others: jobs have 115 operators and ninety nodes each."""


def tasks_in(folders: Folders) -> list[Task]:
    """Return the tasks of which the data is at hand; settings are chosen on the first."""
    loads: dict[str, Callable[[], GraphDataset]] = {}
    if folders.tpu_tile is not None:
        loads["tpu_tile"] = partial(load_tpu_tile, TpuTileConfig(folder=folders.tpu_tile))
    if folders.amp is not None:
        loads["amp"] = partial(load_dgrl, DgrlConfig(folder=folders.amp, num_graphs=AMP_GRAPHS))
    loads["jobs"] = partial(load_corpus, CorpusConfig(max_nodes=MOST_NODES))
    if folders.na_edge is not None:
        loads["na_edge"] = partial(
            load_dgrl, DgrlConfig(folder=folders.na_edge, num_graphs=NA_GRAPHS)
        )
    return [_task(name, load) for name, load in loads.items()]


def _task(name: str, load: Callable[[], GraphDataset]) -> Task:
    once = cache(lambda: operators_alone(load()))

    def shortened(train: int | None) -> GraphDataset:
        return first_graphs(once(), train)

    def others(count: int) -> Sequence[DAG]:
        return once().graphs["val"][:count]

    is_valid = rule_of(once)
    budget = BUDGETS.get(name, 1.0)
    left_out = LEFT_OUT.get(name, {})
    return Task(name, shortened, is_valid, others, similarity, DRAWS, left_out, budget)


def operators_alone(data: GraphDataset) -> GraphDataset:
    """Return the graphs with their first attribute, one type of edge, and no conditions."""
    attributes, edge_types = data.schema.attributes[:1], data.schema.edge_types[:1]
    schema = GraphSchema(data.schema.kind, attributes, edge_types)
    graphs = {split: tuple(map(_plain, data.graphs[split])) for split in SPLITS}
    return GraphDataset.of_splits(data.name, schema, graphs, data.names)


def _plain(dag: DAG) -> DAG:
    return DAG.build(dag.x_NA[:, :1], dag.edge_index_2E, layer_N=dag.layer_N)


def first_graphs(data: GraphDataset, train: int | None) -> GraphDataset:
    """Return the data set with so many training graphs at most."""
    if train is None:
        return data
    graphs: dict[Split, tuple[DAG, ...]] = {
        split: tuple(data.graphs[split][: train if split == "train" else None]) for split in SPLITS
    }
    names = {split: data.names[split][: len(graphs[split])] for split in SPLITS}
    return GraphDataset.of_splits(data.name, data.schema, graphs, names)


LEFT_OUT = {"na_edge": {"reference": "sampling takes 237 times as long as with `fast`"}}
"""Learners that are not run on a task, with the reason."""
