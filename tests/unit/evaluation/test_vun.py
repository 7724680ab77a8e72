"""Valid, unique, novel: of DAGs, of graphs of networkx, under rules of one's own."""

import networkx as nx
import pytest
import torch

import layerdag as ld
from layerdag.dag.dag import DAG
from layerdag.errors import UsageError
from layerdag.evaluation.vun import Proportion, novelty, vun


def chain(*kinds: int) -> DAG:
    edges = torch.tensor([range(len(kinds) - 1), range(1, len(kinds))], dtype=torch.int64)
    return DAG.build(torch.tensor(kinds)[:, None], edges)


def test_counts_of_valid_unique_novel_and_all_three() -> None:
    samples = [chain(0, 1), chain(1, 1, 1), chain(1, 1, 1), chain(2, 2)]
    found = vun([chain(0, 1), chain(0, 0)], samples, held_out=[chain(0, 0), chain(3, 3)])
    counts = [found.valid.count, found.unique.count, found.novel.count, found.vun.count]
    assert counts == [4, 3, 3, 2]
    assert found.novel_real == Proportion(1, 2)
    assert found.to_dict()["vun"]["fraction"] == 0.5


def test_the_order_of_nodes_makes_no_graph_new() -> None:
    backward = DAG.build(torch.tensor([[1], [0]]), torch.tensor([[1], [0]]))
    assert novelty([chain(0, 1)], [backward]) == Proportion(0, 1)


def test_a_cycle_is_neither_valid_nor_unique_nor_novel() -> None:
    cycle = DAG.build(torch.tensor([[0], [0]]), torch.tensor([[0, 1], [1, 0]]))
    found = vun([chain(0, 1)], [cycle, chain(2, 2)])
    assert [found.valid.count, found.unique.count, found.novel.count, found.vun.count] == [1] * 4


def test_rules_of_the_user_and_rules_by_name() -> None:
    samples = [chain(0, 1), chain(0, 1, 2)]
    assert vun([chain(5, 5)], samples, ["acyclic", lambda dag: dag.num_nodes == 2]).vun.count == 1
    with pytest.raises(UsageError, match=r"no rule 'acylic'.*Did you mean 'acyclic'"):
        vun([chain(5, 5)], samples, ["acylic"])


def test_graphs_of_networkx_are_taken_where_a_data_set_says_what_codes_are() -> None:
    data = ld.load_dataset("latent_preferential", num_train=5, num_val=2, num_test=2)
    graphs = []
    for dag in data.graphs["train"]:
        words = data.schema.decode(dag).categories
        graph = nx.DiGraph()
        for node in range(dag.num_nodes):
            graph.add_node(node, **{name: column[node] for name, column in words.items()})
        graph.add_edges_from(dag.edge_index_2E.T.tolist())
        graphs.append(graph)
    assert vun(data, graphs).novel.count == 0
    graphs[0].nodes[0][data.schema.attributes[0].name] = "no such word"
    assert vun(data, graphs).valid.count == 4
    with pytest.raises(UsageError, match="Only a data set says"):
        vun([chain(0, 1)], graphs)


def test_an_interval_lies_between_0_and_1() -> None:
    low, high = Proportion(0, 20).interval.low, Proportion(20, 20).interval.high
    assert (low, high) == (0, 1)
    assert str(Proportion(1, 2)) == "50.0% [9%, 91%]"


def test_an_empty_set_and_an_unknown_attribute_are_refused() -> None:
    with pytest.raises(UsageError, match="one set is empty"):
        vun([chain(0, 1)], [])
    data = ld.load_dataset("latent_preferential", num_train=5, num_val=2, num_test=2)
    with pytest.raises(UsageError, match="There is no node attribute 'durtion'"):
        vun(data, list(data.graphs["test"]), without=["durtion"])
