from dataclasses import replace

import torch

from layerdag.graph import DAG, GraphSizes, GraphStatistics
from layerdag.models.diffusion._degree_codes import DegreeCodes


def test_only_in_degrees_that_occur_have_codes(sizes: GraphSizes, make_dag):
    statistics = GraphStatistics.measure([make_dag(2, 3)], sizes)
    kinds = (((0, 4), (1, 2)), ((1, 1), (200, 3)), (), ())
    codes = DegreeCodes(replace(statistics, in_degrees=kinds))
    assert codes.counts == (4, 3, 3)
    assert codes.encode(torch.tensor([0, 1, 2, 199, 200, 999])).tolist() == [0, 1, 1, 1, 2, 2]
    assert codes.decode(torch.tensor([0, 1, 2])).tolist() == [0, 1, 200]


def codes_of(*kinds: tuple[tuple[int, int], ...]) -> DegreeCodes:
    """Codes of training graphs with these pairs of (in-degree, nodes) per kind."""
    dag = DAG.build(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64))
    statistics = GraphStatistics.measure([dag], GraphSizes((1,)))
    return DegreeCodes(replace(statistics, in_degrees=kinds))


def test_codes_and_known_in_degrees_go_there_and_back():
    codes = codes_of(((0, 4), (3, 2)), ((3, 1), (7, 9), (500, 1)))
    every = torch.arange(len(codes))
    assert torch.equal(codes.encode(codes.decode(every)), every)
    known = torch.tensor([0, 3, 7, 500])
    assert torch.equal(codes.decode(codes.encode(known)), known)


def test_an_unknown_in_degree_becomes_the_largest_known_one_below():
    codes = codes_of(((0, 1), (3, 1), (7, 1)))
    degrees = torch.arange(20)
    found = codes.decode(codes.encode(degrees))
    wanted = [max(known for known in (0, 3, 7) if known <= degree) for degree in range(20)]
    assert found.tolist() == wanted
    assert (found.diff() >= 0).all()


def test_nodes_of_all_kinds_are_counted_together():
    assert codes_of(((1, 5),), ((1, 6), (2, 1))).counts == (0, 11, 1)


def test_no_parent_has_a_code_even_if_no_training_node_lacks_parents():
    codes = codes_of(((2, 5),))
    assert len(codes) == 2
    assert codes.decode(torch.tensor([0, 1])).tolist() == [0, 2]
    assert codes.encode(torch.tensor([1])).tolist() == [0]


def test_graphs_without_edges_have_the_one_code():
    codes = codes_of(((0, 3),))
    assert len(codes) == 1
    assert codes.encode(torch.tensor([0, 9])).tolist() == [0, 0]


def test_the_table_is_no_part_of_the_weights():
    assert not codes_of(((0, 1), (3, 1))).state_dict()
