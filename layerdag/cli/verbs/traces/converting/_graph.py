"""``layerdag convert`` of flow graphs: WfFormat, DOT, node-link JSON, GraphML, layerdag's JSON."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from layerdag.codec import AttributedGraph
from layerdag.errors import UsageError

FORMS = ("json", "graphml", "wfformat", "dot")
"""What ``--to`` takes for a graph; json is layerdag's own and loses nothing."""


def convert_graph(args: argparse.Namespace, graph: AttributedGraph) -> int:
    """Write a graph in the form that ``--to`` names and say what was written.

    Raises:
        UsageError: If a graph has no such form, or a file is there and may not be replaced.
    """
    if args.to not in FORMS:
        raise UsageError(
            f"{args.inputs[0]} is a flow graph, which has no form '{args.to}'; choose one of "
            f"{', '.join(FORMS)} with --to."
        )
    if len(args.inputs) > 1:
        raise UsageError("A flow graph is converted alone; name one input.")
    out = Path(args.out)
    if out.exists() and not args.overwrite:
        raise UsageError(f"{out}: is there already; name another file, or add --overwrite.")
    write_graph(graph, args.to, out)
    print(
        f"wrote a graph of {graph.num_nodes:,} nodes and {graph.edge_index_2E.shape[1]:,} edges: "
        f"{out}",
        file=sys.stderr,
    )
    return 0


def write_graph(graph: AttributedGraph, form: str, out: Path) -> None:
    """Write a graph in one of ``FORMS``."""
    from layerdag.datasets.files import write_dot, write_graphml, write_json, write_wfformat

    if form == "wfformat":
        write_wfformat(out, _with_runtimes(graph))
    else:
        {"json": write_json, "graphml": write_graphml, "dot": write_dot}[form](out, graph)


def _with_runtimes(graph: AttributedGraph) -> AttributedGraph:
    """Return a job's graph with its durations under the name of WfFormat."""
    if "runtime_s" in graph.numbers or graph.units.get("duration") != "ns":
        return graph
    return replace(graph, numbers={**graph.numbers, "runtime_s": graph.numbers["duration"] / 1e9})
