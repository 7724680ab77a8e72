"""Graphs of calls as programs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_programs import images, language

from layerdag.errors import DataError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import program_graph
from layerdag.programs.assembly import assemble
from layerdag.programs.forward_program import Program
from layerdag.programs.sources import program


def recorded(made=language) -> Program:
    model, inputs = made()
    return program(model, inputs, loss=torch.Tensor.sum)


def shuffled(graph: AttributedGraph, seed: int) -> AttributedGraph:
    """The same graph with its nodes in another order, the loss still last."""
    count = graph.num_nodes
    order = np.append(np.random.default_rng(seed).permutation(count - 1), count - 1)
    place = np.argsort(order)
    return replace(
        graph,
        categories={n: [column[i] for i in order] for n, column in graph.categories.items()},
        edge_index_2E=place[graph.edge_index_2E],
        node_names=(),
    )


@pytest.mark.parametrize("made", [language, images])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_graph_becomes_the_program_again_whatever_the_order_of_its_nodes(made, seed):
    whole = recorded(made)
    graph = program_graph(whole.to_json(), "it")
    found = assemble(shuffled(graph, seed), whole.sizes.__getitem__)
    assert not found.check()
    assert sorted(found.sizes.values()) == sorted(whole.sizes.values())
    assert found.operator_counts() == whole.operator_counts()
    assert found.parameters() == whole.parameters()


def test_calls_lie_in_units_as_they_were_recorded():
    whole = recorded()
    found = assemble(program_graph(whole.to_json(), "it"), whole.sizes.__getitem__)
    inside = [sum(node.module.startswith(unit) for node in whole.nodes) for unit in whole.units]
    assert [sum(node.module == unit for node in found.nodes) for unit in found.units] == inside
    assert len(found.step(fsdp=2).workload().traces) == 2


def test_entries_are_numbered_as_they_are_first_used():
    graph = program_graph(recorded().to_json(), "it")
    words = [word.replace("w0", "w7") for word in graph.categories["sizes"]]
    asked: list[str] = []

    def draw(entry: str) -> int:
        asked.append(entry)
        return 24

    found = assemble(replace(graph, categories={**graph.categories, "sizes": words}), draw)
    assert "w7" in asked
    assert "w0" in found.sizes
    assert "w7" not in found.sizes


def test_a_place_that_two_inputs_take_is_refused():
    graph = program_graph(recorded().to_json(), "it")
    types = np.zeros_like(graph.edge_type_E)
    with pytest.raises(DataError, match="names no free place"):
        assemble(replace(graph, edge_type_E=types), lambda _: 8)
