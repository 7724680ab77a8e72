"""``layerdag convert``: traces and graphs from one format to another."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import add_strict, notes_json, print_json, print_notes, strict_code
from layerdag.errors import GraphError, UsageError
from layerdag.runtime.settings import did_you_mean
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.codec.convert_inputs import Inputs
    from layerdag.graph.attributed_graph import AttributedGraph
    from layerdag.runtime.notes import Note
    from layerdag.traces.trace import Workload


ENDINGS = {"et": ".et", "feeder-json": ".json"}
"""How the files of the forms that give each rank one end."""


def require_free(kind: str, out: Path, *, overwrite: bool) -> None:
    """Raise UsageError, before anything is read, if what lies at ``out`` may not be replaced."""
    from layerdag.traces.chakra.json_forms import feeder_files
    from layerdag.traces.chakra.workload import require_free_prefix

    if kind == "json":
        if out.exists() and not overwrite:
            raise UsageError(f"{out}: is there already; name another file, or add --overwrite.")
        return
    ending = ENDINGS[kind]
    prefix = _prefix(out, ending)
    if kind == "et":
        require_free_prefix(prefix, overwrite=overwrite)
    elif not overwrite and (standing := feeder_files(prefix)):
        raise UsageError(
            f"{prefix}: a workload lies there already ({standing[0].name}); name another prefix, "
            "or allow that it is replaced with --overwrite."
        )


def write_traces(workload: "Workload", kind: str, out: Path) -> Path:
    """Write the workload in the chosen form, in place of one there; return its first file."""
    from layerdag.codec.formats import Content, writer

    write = writer(kind, Content.TRACES)
    if kind == "json":
        write(out, workload)
        return out
    prefix = _prefix(out, ENDINGS[kind])
    write(prefix, workload)
    return _file_of(prefix, 0, ENDINGS[kind])


def _prefix(out: Path, ending: str) -> Path:
    """Return the prefix that ``--out`` names, with or without the ending of the files.

    Raises:
        UsageError: If it has the ending of another kind of file.
    """
    if out.suffix == ending:
        return out.with_suffix("")
    if out.suffix in (".et", ".json"):
        raise UsageError(
            f"--out {out}: a prefix is needed, since every rank gets a {ending} file of its own; "
            f"write --out {out.with_suffix('')}, or choose another form with --to."
        )
    return out


def _file_of(prefix: Path, rank: int, ending: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{rank}{ending}")


SUMMARY = "Convert traces between formats; scrub what may not be shared."
EXAMPLE = (
    "  layerdag convert host.0.json host.1.json --device dev.0.json dev.1.json --out run/job\n"
    "  layerdag convert folder_of_host_traces_and_profiles --out run/job\n"
    "  layerdag convert old_trace.et --out new/job            (any Chakra generation to 1.0.0)\n"
    "  layerdag convert Resnet50.txt --ranks 8 --out run/resnet\n"
    "  layerdag convert model.mlir --compute a100-80 --out run/model  (StableHLO or HLO text)\n"
    "  layerdag convert workflow.dot --to wfformat --out workflow.json  (flow graphs)\n"
    "  layerdag convert run/job --scrub --out shared/job"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    from layerdag.runtime.reading import Limits

    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="input",
        help="a prefix, folder or file; several PyTorch host traces, or several Kineto profiles, "
        "or a folder of them, one per rank, are the ranks of one job",
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="PREFIX",
        help="et: prefix of PREFIX.<rank>.et and PREFIX.comm_group.json; json and graphs: the "
        "file; feeder-json: prefix of PREFIX.<rank>.json; an ending after it is ignored",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a workload that lies at PREFIX"
    )
    parser.add_argument(
        "--to",
        metavar="FORMAT",
        default="et",
        help="et: Chakra 1.0.0 as both feeders and ASTRA-sim read it (default); json: without "
        "loss; feeder-json: for Chakra's feeder v1; graphml, wfformat, dot: of a flow graph, or of "
        "the graph of a job",
    )
    parser.add_argument(
        "--device",
        nargs="+",
        default=[],
        metavar="FILE",
        help="Kineto profiles of the same steps, one for each host trace, in the same order",
    )
    parser.add_argument(
        "--ranks",
        type=int,
        default=1,
        help="number of ranks of an ASTRA-sim text workload, or of a program for one device",
    )
    parser.add_argument(
        "--compute",
        metavar="HARDWARE",
        help="of StableHLO and HLO: a100-40, a100-80, tpu-v3, or a JSON file with peak_flops, "
        "memory_bandwidth and per_datatype_flops",
    )
    parser.add_argument(
        "--split",
        choices=("linear", "individual"),
        default="linear",
        help="of StableHLO and HLO: one node for all computation between two collectives "
        "(default), or one for each operation with its dependencies",
    )
    parser.add_argument(
        "--max-ranks",
        type=int,
        default=Limits().max_ranks,
        metavar="N",
        help="refuse jobs of more ranks, each of which is a file (default: %(default)s)",
    )
    parser.add_argument(
        "--max-bytes",
        type=int,
        default=Limits().max_bytes,
        metavar="N",
        help="refuse to write more bytes, as estimated (default: %(default)s)",
    )
    parser.add_argument(
        "--comm-group", metavar="FILE", help='communicator groups: JSON {"<group>": [rank, ...]}'
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--only-rank",
        action="store_true",
        help="take a PyTorch trace of one rank of a larger job alone: its communication becomes "
        "work of equal time",
    )
    one.add_argument(
        "--replicate",
        action="store_true",
        help="let every rank of the job run a PyTorch trace of one rank (SPMD), each with groups "
        "of its own",
    )
    parser.add_argument(
        "--uneven",
        choices=("max", "mean"),
        help="give the members of each all-to-all that state unequal sizes the largest or the mean "
        "of these, since a collective has one size",
    )
    parser.add_argument(
        "--drop-dangling",
        action="store_true",
        help="drop dependencies on nodes that are not in the trace instead of refusing it",
    )
    parser.add_argument(
        "--scrub",
        action="store_true",
        help="remove every string outside a public vocabulary, timestamps and process data, and "
        "renumber ids",
    )
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    """Read, scrub if asked, and write."""
    from layerdag.codec.convert_inputs import read_inputs
    from layerdag.codec.formats import Content, recognize, words
    from layerdag.runtime.reading import Limits, require_few_bytes, require_few_ranks, written_bytes
    from layerdag.traces.analysis import impossible

    of_jobs, of_graphs = words(Content.TRACES), words(Content.GRAPH)
    if args.to not in (*of_jobs, *of_graphs):
        known = tuple(dict.fromkeys((*of_jobs, *of_graphs)))
        raise UsageError(
            f"--to: there is no format '{args.to}'.{did_you_mean(args.to, known)} Known: "
            f"{', '.join(known)}."
        )
    found = recognize(args.inputs[0])
    if args.to not in of_jobs or found.content is Content.GRAPH:
        _refuse_options_of_traces(args)
        return convert_graph(args, found.graph())
    limits = Limits(args.max_ranks, args.max_bytes)
    require_few_ranks(args.ranks, limits, f"--ranks {args.ranks}")
    require_free(args.to, Path(args.out), overwrite=args.overwrite)
    workload = read_inputs(found, _inputs(args), print_status)
    if args.drop_dangling:
        workload = _without_dangling(workload)
    # Forms other than JSON refuse dependencies that cannot be.
    found_notes = impossible(workload, dependencies=args.to in ("json", "feeder-json"))
    workload = replace(workload, job_notes=(*workload.job_notes, *found_notes))
    notes = workload.notes
    print_notes(notes)
    if args.strict and notes:
        print_status("nothing was written: --strict allows no notes")
        return strict_code(notes, strict=True)
    if args.uneven:
        workload = _evened(workload, args.uneven)
    if args.scrub:
        workload = _scrubbed(workload)
    nodes = sum(trace.num_nodes for trace in workload.traces)
    if args.to != "json":
        require_few_ranks(workload.num_ranks, limits, workload.source)
        require_few_bytes(written_bytes(nodes, args.to), limits, workload.source)
    first = write_traces(workload, args.to, Path(args.out))
    _report_written(args, first, workload, nodes)
    return 0


def _report_step(workload: "Workload") -> None:
    from layerdag.simulator.host_time import replayed_step_us

    step_us = replayed_step_us(workload)
    if step_us is not None:
        print_status(f"step with the gaps between the calls of the host: {step_us:,} us")


def _report_written(
    args: argparse.Namespace, first: Path, workload: "Workload", nodes: int
) -> None:
    ranks = workload.num_ranks
    others = "" if args.to == "json" or ranks == 1 else f" and {ranks - 1:,} more"
    print_status(f"wrote {counted(ranks, 'rank')} with {nodes:,} nodes: {first}{others}")
    if args.to == "et":  # other forms may hold dependencies that no step can have
        _report_step(workload)
    if args.json:
        notes = notes_json(workload.notes)
        print_json({"out": str(first), "ranks": ranks, "nodes": nodes, "notes": notes})


def _inputs(args: argparse.Namespace) -> "Inputs":
    from layerdag.codec.convert_inputs import Inputs
    from layerdag.codec.formats import ReadOptions
    from layerdag.traces.hlo.program import DeviceSplit

    return Inputs(
        paths=args.inputs,
        profiles=args.device or (),
        options=ReadOptions(args.comm_group, args.ranks, args.compute),
        split=DeviceSplit(args.split),
        only_rank=args.only_rank,
        replicate=args.replicate,
    )


def print_status(text: str) -> None:
    """Print one line on standard error, where it cannot mix with data."""
    sys.stderr.write(f"{text}\n")


def _without_dangling(workload: "Workload") -> "Workload":
    from layerdag.traces.trace import drop_dangling

    clean, dropped = drop_dangling(workload)
    print_status(f"dropped {dropped:,} dependencies on nodes that are not in the trace")
    return clean


def _evened(workload: "Workload", size: str) -> "Workload":
    from layerdag.validation.fixes import UniformSize, make_all_to_all_uniform

    even, found = make_all_to_all_uniform(workload, UniformSize(size))
    print_status(
        f"--uneven {size}: {found.count:,} all-to-alls had members of unequal sizes; all members "
        f"together gave {found.before:,} bytes and give {found.after:,} now"
    )
    return even


def _scrubbed(workload: "Workload") -> "Workload":
    from layerdag.codec.vocabulary import scrub

    clean, report = scrub(workload)
    print_status(
        f"scrubbed: {report.replaced_names:,} names replaced, {report.kept_names:,} public "
        f"operator names kept; removed {report.removed_io:,} inputs and outputs, "
        f"{report.removed_start_times:,} start times, {report.removed_metadata:,} metadata "
        f"entries; renumbered {report.renumbered_nodes:,} nodes, {report.renamed_groups:,} groups, "
        f"{report.renumbered_tags:,} tags, {report.renumbered_streams:,} streams, "
        f"{report.renumbered_priorities:,} priorities"
    )
    for name, count in report.removed_attributes.items():
        print_status(f"  removed attribute {name!r} {count:,} times")
    return clean


_OF_TRACES = (
    "device",
    "ranks",
    "compute",
    "comm_group",
    "only_rank",
    "replicate",
    "uneven",
    "drop_dangling",
    "scrub",
)


def _refuse_options_of_traces(args: argparse.Namespace) -> None:
    """Refuse what would have no effect where a graph is written."""
    asked = {name: getattr(args, name) for name in _OF_TRACES}
    given = [name for name, value in asked.items() if value and (name, value) != ("ranks", 1)]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(
            f"{flag} is for traces, and has no effect where a graph is written (--to {args.to}); "
            "leave it out, or convert to et first and that to a graph."
        )


def convert_graph(args: argparse.Namespace, graph: "AttributedGraph") -> int:
    """Write a graph in the form that ``--to`` names and say what was written.

    Raises:
        UsageError: If a graph has no such form, or a file is there and may not be replaced.
    """
    from layerdag.codec.formats import Content, words

    if args.to not in words(Content.GRAPH):
        raise UsageError(
            f"{args.inputs[0]} is a flow graph, which has no form '{args.to}'; choose one of "
            f"{', '.join(words(Content.GRAPH))} with --to."
        )
    if len(args.inputs) > 1:
        raise UsageError("A flow graph is converted alone; name one input.")
    out = Path(args.out)
    if out.exists() and not args.overwrite:
        raise UsageError(f"{out}: is there already; name another file, or add --overwrite.")
    try:
        _ = graph.layer_N
    except GraphError as error:
        raise GraphError(f"{args.inputs[0]}: {error}") from None
    print_notes(graph.notes)
    if args.strict and graph.notes:
        print_status("nothing was written: --strict allows no notes")
        return strict_code(graph.notes, strict=True)
    lost = write_graph(graph, args.to, out)
    print_notes(lost)
    edges = graph.edge_index_2E.shape[1]
    print_status(
        f"wrote a graph of {counted(graph.num_nodes, 'node')} and {counted(edges, 'edge')}: {out}"
    )
    if args.json:
        notes = notes_json([*graph.notes, *lost])
        figures = {"out": str(out), "nodes": graph.num_nodes, "edges": edges, "notes": notes}
        print_json(figures)
    return 0


def write_graph(graph: "AttributedGraph", form: str, out: Path) -> "Sequence[Note]":
    """Write a graph in the format of a word of ``--to``; return what the form cannot hold."""
    from layerdag.codec.formats import Content, writer

    written = _with_runtimes(graph) if form == "wfformat" else graph
    told = writer(form, Content.GRAPH)(out, written)
    return told if isinstance(told, tuple) else ()


def _with_runtimes(graph: "AttributedGraph") -> "AttributedGraph":
    if "runtime_s" in graph.numbers or graph.units.get("duration") != "ns":
        return graph
    return replace(graph, numbers={**graph.numbers, "runtime_s": graph.numbers["duration"] / 1e9})
