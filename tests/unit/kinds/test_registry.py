"""Kinds of graphs are found by name and by their attributes."""

import pickle

import numpy as np
import pytest
from costed_jobs import costed_job
from raw_graphs import chain

from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats import program_json
from layerdag.kinds.flow import FLOW
from layerdag.kinds.graph_kind import GraphKind
from layerdag.kinds.job import JOB
from layerdag.kinds.program import PROGRAM
from layerdag.kinds.registry import graph_kind, kind_of_graph

KINDS = (PROGRAM, JOB, FLOW)


def program() -> AttributedGraph:
    return AttributedGraph(
        name="program",
        categories={name: ["a"] for name in program_json.ATTRIBUTES},
        numbers={},
        edge_index_2E=np.zeros((2, 0), np.int64),
        edge_type_E=np.zeros(0, np.int64),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_found_by_its_name_and_survives_another_process(kind):
    assert graph_kind(kind.name) is kind
    assert graph_kind(kind) is kind
    assert pickle.loads(pickle.dumps(kind)) == kind
    assert [kind == other for other in KINDS].count(True) == 1


def test_an_unknown_name_is_told_with_those_that_are_known():
    with pytest.raises(UsageError, match="no kind of graphs 'jobs'; known: program, trace, flow"):
        graph_kind("jobs")


@pytest.mark.parametrize(
    ("graph", "kind"), [(program(), PROGRAM), (costed_job(8), JOB), (chain("g", "ab"), FLOW)]
)
def test_the_attributes_of_a_graph_tell_its_kind(graph: AttributedGraph, kind: GraphKind):
    assert kind_of_graph(graph) == kind
