"""``layerdag view``: pictures, pages, graph files and timelines of a trace."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import add_groups, notes_json, print_json, print_notes
from layerdag.errors import UsageError

if TYPE_CHECKING:
    from layerdag.graph.attributed_graph import AttributedGraph
    from layerdag.graph.formats.rows import GraphRows
    from layerdag.traces.trace import Workload
    from layerdag.viz.views import GraphView


SUMMARY = "Draw a trace or graph as picture or zoomable page; write graph files and timelines."
EXAMPLE = (
    "  layerdag workload gpt2 --data 2 --out traces/gpt2\n"
    "  layerdag view traces/gpt2 --rank 0 --out run.html\n"
    "  layerdag view traces/gpt2.0.et --out run.graphml\n"
    "  layerdag view traces/gpt2 --simulate small --out run.html\n"
    "  layerdag view traces/gpt2 --to chrome --out timeline.json    (open in ui.perfetto.dev)"
)
_PICTURES = {".svg": "picture", ".png": "picture", ".pdf": "picture", ".html": "html"}
_GRAPHS = ("graphml", "dot", "json")
_KINDS = ("picture", "html", *_GRAPHS, "chrome")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add("workload",
        help="prefix, folder or file of a trace in any format that layerdag reads, or a flow graph "
        "(GraphML, WfFormat, DOT, node-link JSON, or JSON from 'sample')")  # fmt: skip
    add("--out", required=True, metavar="FILE",
        help="file to write: .svg .png .pdf (up to 2,000 nodes), .html (zoomable, up to 20,000), "
        ".graphml, .dot, .json (without loss)")  # fmt: skip
    add("--to", choices=_KINDS, help="what to write, where the suffix of --out does not say")
    add("--rank", type=int, default=0,
        help="which rank to draw (default 0; json, chrome: all)")  # fmt: skip
    add("--simulate", choices=("small",), metavar="PRESET",
        help="on the page, show when each node runs on a simulated cluster, and the critical path; "
        "the preset is small, as of 'layerdag simulate'. Without it, times follow from the trace's "
        "durations")  # fmt: skip
    add("--compute", metavar="MODEL",
        help="times of compute nodes of --simulate, such as h100")  # fmt: skip
    add_groups(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    from layerdag.codec.formats import FORMATS, Content, ReadOptions, recognize

    out = Path(args.out)
    graphs = {e: f.word for f in FORMATS if f.word in _GRAPHS for e in f.endings}
    by_suffix = {**_PICTURES, **graphs}
    kind = args.to or by_suffix.get(out.suffix.lower())
    if kind is None:
        known = " ".join(by_suffix)
        raise UsageError(f"--out {out}: the suffix must be one of {known}, or --to must say it.")
    if kind == "picture" and _PICTURES.get(out.suffix.lower()) != "picture":
        raise UsageError(f"--out {out}: a picture needs the suffix .svg, .png or .pdf.")
    if args.simulate and kind != "html":
        raise UsageError("--simulate needs a page: --out FILE.html.")
    if args.compute and not args.simulate:
        raise UsageError("--compute says how fast --simulate computes; give both.")
    found = recognize(args.workload)
    if found.content is Content.GRAPH:
        if args.simulate:
            raise UsageError(f"{args.workload} is a flow graph, which cannot be simulated.")
        if args.comm_group:
            raise UsageError(f"{args.workload} is a flow graph, which has no communicator groups.")
        graph = found.graph()
        notes = graph.notes
        print_notes(notes)
        _write_graph(kind, graph, args.workload, out)
    else:
        workload = found.traces(ReadOptions(args.comm_group))
        notes = workload.notes
        print_notes(notes)
        _write(kind, workload, args, out)
    if args.json:
        print_json({"out": str(out), "kind": kind, "notes": notes_json(notes)})
    print(f"wrote {out}", file=sys.stderr)
    return 0


def _write_graph(kind: str, graph: "AttributedGraph", path: str, out: Path) -> None:
    """Write a flow graph in the chosen form; a program's edges have the shapes of tensors."""
    from layerdag.graph.attributed_graph import write_json
    from layerdag.graph.formats.rows import GraphRows
    from layerdag.viz.views import view_of_graph

    if kind == "chrome":
        raise UsageError(f"{path} is a flow graph, which has no timeline; choose another form.")
    if kind == "json":
        write_json(out, graph)
    else:
        shapes = _shapes(path) if kind in ("picture", "html") else ()
        _draw(kind, view_of_graph(graph, shapes), out, GraphRows.from_graph(graph))


def _shapes(path: str) -> Sequence[str]:
    """Return the shapes of what the nodes of a program make; none of any other graph.

    Of a program that cannot run there are none, which is told.
    """
    from layerdag.codec.formats import FORWARD_PROGRAM, format_of_file

    if format_of_file(Path(path)) is not FORWARD_PROGRAM:
        return ()
    from layerdag.programs.execution import NodeError, result_shapes  # torch, to run it
    from layerdag.programs.forward_program import Program

    try:
        return result_shapes(Program.load(path))
    except NodeError as error:
        print(f"note: without shapes, for {error}", file=sys.stderr)
        return ()


def _draw(kind: str, view: "GraphView", out: Path, rows: "GraphRows | None" = None) -> None:
    from layerdag.codec.formats import Content, writer
    from layerdag.runtime.files import write_text
    from layerdag.viz.drawing import save_picture
    from layerdag.viz.viewer import html_page
    from layerdag.viz.views import drawn_rows, graph_rows

    if kind == "picture":
        save_picture(view, out)
    elif kind == "html":
        write_text(out, html_page(view))
    else:
        written = drawn_rows(view, rows) if kind == "dot" else rows or graph_rows(view)
        writer(kind, Content.GRAPH)(out, written)


def _write(kind: str, workload: "Workload", args: argparse.Namespace, out: Path) -> None:
    from layerdag.runtime.files import write_bytes, write_text
    from layerdag.traces.chakra.json_forms import encode_trace_json
    from layerdag.viz.viewer import recorded_timing, simulated_timing
    from layerdag.viz.views import chrome_trace, view_of_trace

    if kind == "json":
        write_bytes(out, encode_trace_json(workload))
    elif kind == "chrome":
        write_text(out, chrome_trace(workload))
    else:
        if not 0 <= args.rank < workload.num_ranks:
            raise UsageError(
                f"--rank {args.rank}: {workload.source} has ranks 0 to {workload.num_ranks - 1}."
            )
        view = view_of_trace(workload.traces[args.rank])
        if kind == "html":
            timing = (
                recorded_timing(workload.traces[args.rank])
                if args.simulate is None
                else simulated_timing(workload, args.simulate, args.rank, args.compute)
            )
            view = replace(view, timing=timing)
        _draw(kind, view, out)
