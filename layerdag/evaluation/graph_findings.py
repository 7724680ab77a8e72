"""Where a graph of any kind breaks a rule."""

from contextlib import suppress

import torch

from layerdag.dag.dag import DAG
from layerdag.errors import GraphError
from layerdag.evaluation.validity import GRAPH_RULES, check_structure
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats import program_json
from layerdag.graph.formats.rows import LOOP
from layerdag.programs.forward_program import Program
from layerdag.validation.rules import Finding


def graph_findings(graph: AttributedGraph, *, in_layer_order: bool = False) -> list[Finding]:
    """Return where a graph breaks a rule; a graph of a program is run on fake tensors.

    Args:
        graph: Loops that its reader left out are among the findings.
        in_layer_order: Whether its nodes are to be listed layer by layer, as sampling lists them;
            files of others list them in any order.
    """
    if {program_json.CALL, program_json.SIZES} <= graph.categories.keys():
        return Program.from_json(program_json.graph_to_program(graph), graph.name).check()
    what = "The edges contain a cycle"
    loops = [
        Finding(GRAPH_RULES["acyclic"], graph.name, None, f"{what}: {note.word}", note.count)
        for note in graph.notes
        if note.effect == LOOP
    ]
    x_NA = torch.zeros((graph.num_nodes, 1), dtype=torch.int64)
    dag = DAG.build(x_NA, torch.from_numpy(graph.edge_index_2E))
    with suppress(GraphError):  # the rules report it
        dag = dag if in_layer_order else dag.in_layer_order()
    return [*loops, *check_structure([dag], names=[graph.name]).findings]
