"""``layerdag convert``: traces and graphs from one format to another."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import (
    add_groups,
    add_limits,
    add_strict,
    notes_json,
    print_json,
    print_notes,
    strict_code,
)
from layerdag.errors import GraphError, UsageError
from layerdag.runtime.settings import did_you_mean
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.graph.attributed_graph import AttributedGraph
    from layerdag.traces.trace import Workload

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


_ENDINGS = {"et": ".et", "feeder-json": ".json"}
"""How the files of the forms that give each rank one end."""
_OF_TRACES = (
    "device", "ranks", "compute", "comm_group", "only_rank", "replicate", "uneven",
    "drop_dangling", "scrub",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add("inputs", nargs="+", metavar="input",
        help="a prefix, folder or file; several PyTorch host traces, or several Kineto profiles, "
        "or a folder of them, one per rank, are the ranks of one job")  # fmt: skip
    add("--out", required=True, metavar="PREFIX",
        help="et: prefix of PREFIX.<rank>.et and PREFIX.comm_group.json; json and graphs: the "
        "file; feeder-json: prefix of PREFIX.<rank>.json; an ending after it is "
        "ignored")  # fmt: skip
    add("--to", metavar="FORMAT", default="et",
        help="et: Chakra 1.0.0 as both feeders and ASTRA-sim read it (default); json: without "
        "loss; feeder-json: for Chakra's feeder v1; graphml, wfformat, dot: of a flow graph, or of "
        "the graph of a job")  # fmt: skip
    add("--device", nargs="+", default=[], metavar="FILE",
        help="Kineto profiles of the same steps, one for each host trace, in the same "
        "order")  # fmt: skip
    add("--ranks", type=int, default=1,
        help="number of ranks of an ASTRA-sim text workload, or of a program for one "
        "device")  # fmt: skip
    add("--compute", metavar="HARDWARE",
        help="of StableHLO and HLO: a100-40, a100-80, tpu-v3, or a JSON file with peak_flops, "
        "memory_bandwidth and per_datatype_flops")  # fmt: skip
    add("--split", choices=("linear", "individual"), default="linear",
        help="of StableHLO and HLO: one node for all computation between two collectives "
        "(default), or one for each operation with its dependencies")  # fmt: skip
    add_limits(parser)
    add_groups(parser)
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--only-rank", action="store_true",
        help="take a PyTorch trace of one rank of a larger job alone: its communication becomes "
        "work of equal time")  # fmt: skip
    one.add_argument("--replicate", action="store_true",
        help="let every rank of the job run a PyTorch trace of one rank (SPMD), each with groups "
        "of its own")  # fmt: skip
    add("--uneven", choices=("max", "mean"),
        help="give the members of each all-to-all that state unequal sizes the largest or the mean "
        "of these, since a collective has one size")  # fmt: skip
    add("--drop-dangling", action="store_true",
        help="drop dependencies on nodes that are not in the trace instead of refusing "
        "it")  # fmt: skip
    add("--scrub", action="store_true",
        help="remove every string outside a public vocabulary, timestamps and process data, and "
        "renumber ids")  # fmt: skip
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    """Read, scrub if asked, and write."""
    from layerdag.codec.convert_inputs import Inputs, read_inputs
    from layerdag.codec.formats import Content, ReadOptions, recognize, words, writer
    from layerdag.runtime.reading import Limits, require_few_bytes, require_few_ranks, written_bytes
    from layerdag.simulator.host_time import replayed_step_us
    from layerdag.traces.analysis import impossible
    from layerdag.traces.hlo.program import DeviceSplit
    from layerdag.traces.trace import drop_dangling
    from layerdag.validation.fixes import UniformSize, make_all_to_all_uniform

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
    _require_free(args.to, Path(args.out), overwrite=args.overwrite)
    inputs = Inputs(
        paths=args.inputs,
        profiles=args.device,
        options=ReadOptions(args.comm_group, args.ranks, args.compute),
        split=DeviceSplit(args.split),
        only_rank=args.only_rank,
        replicate=args.replicate,
    )
    workload = read_inputs(found, inputs, print_status)
    if args.drop_dangling:
        workload, dropped = drop_dangling(workload)
        print_status(f"dropped {dropped:,} dependencies on nodes that are not in the trace")
    # Forms other than JSON refuse dependencies that cannot be.
    found_notes = impossible(workload, dependencies=args.to in ("json", "feeder-json"))
    workload = replace(workload, job_notes=(*workload.job_notes, *found_notes))
    notes = workload.notes
    print_notes(notes)
    if args.strict and notes:
        print_status("nothing was written: --strict allows no notes")
        return strict_code(notes, strict=True)
    if args.uneven:
        workload, even = make_all_to_all_uniform(workload, UniformSize(args.uneven))
        print_status(
            f"--uneven {args.uneven}: {even.count:,} all-to-alls had members of unequal sizes; all "
            f"members together gave {even.before:,} bytes and give {even.after:,} now"
        )
    if args.scrub:
        workload = _scrubbed(workload)
    nodes, ranks = sum(trace.num_nodes for trace in workload.traces), workload.num_ranks
    if args.to != "json":
        require_few_ranks(ranks, limits, workload.source)
        require_few_bytes(written_bytes(nodes, args.to), limits, workload.source)
    write, out = writer(args.to, Content.TRACES), Path(args.out)
    if args.to == "json":
        first = out
        write(out, workload)
    else:
        prefix = _prefix(out, _ENDINGS[args.to])
        first = prefix.with_name(f"{prefix.name}.0{_ENDINGS[args.to]}")
        write(prefix, workload)
    others = "" if args.to == "json" or ranks == 1 else f" and {ranks - 1:,} more"
    print_status(f"wrote {counted(ranks, 'rank')} with {nodes:,} nodes: {first}{others}")
    # Other forms may hold dependencies that no step can have.
    step_us = replayed_step_us(workload) if args.to == "et" else None
    if step_us is not None:
        print_status(f"step with the gaps between the calls of the host: {step_us:,} us")
    if args.json:
        figures = {"out": str(first), "ranks": ranks, "nodes": nodes}
        print_json({**figures, "notes": notes_json(workload.notes)})
    return 0


def print_status(text: str) -> None:
    """Print one line on standard error, where it cannot mix with data."""
    sys.stderr.write(f"{text}\n")


def _require_free(kind: str, out: Path, *, overwrite: bool) -> None:
    """Raise UsageError, before anything is read, if ``out`` exists and may not be replaced."""
    from layerdag.traces.chakra.json_forms import feeder_files
    from layerdag.traces.chakra.workload import require_free_prefix

    if kind not in _ENDINGS:
        if out.exists() and not overwrite:
            raise UsageError(f"{out}: is there already; name another file, or add --overwrite.")
        return
    prefix = _prefix(out, _ENDINGS[kind])
    if kind == "et":
        require_free_prefix(prefix, overwrite=overwrite)
    elif not overwrite and (standing := feeder_files(prefix)):
        raise UsageError(
            f"{prefix}: a workload lies there already ({standing[0].name}); name another prefix, "
            "or allow that it is replaced with --overwrite."
        )


def _prefix(out: Path, ending: str) -> Path:
    """Return the prefix that ``--out`` names, with or without the ending of the files."""
    if out.suffix == ending:
        return out.with_suffix("")
    if out.suffix in (".et", ".json"):
        raise UsageError(
            f"--out {out}: a prefix is needed, since every rank gets a {ending} file of its own; "
            f"write --out {out.with_suffix('')}, or choose another form with --to."
        )
    return out


def _scrubbed(workload: "Workload") -> "Workload":
    from layerdag.codec.vocabulary import scrub

    clean, removed = scrub(workload)
    print_status(
        f"scrubbed: {removed['replaced names']:,} names replaced, {removed['kept names']:,} public "
        f"operator names kept; removed {removed['io']:,} inputs and outputs, "
        f"{removed['start times']:,} start times, {removed['metadata']:,} metadata entries; "
        f"renumbered {removed['nodes']:,} nodes, {removed['groups']:,} groups, "
        f"{removed['tags']:,} tags, {removed['streams']:,} streams, "
        f"{removed['priorities']:,} priorities"
    )
    for key, count in removed.most_common():
        if key.startswith("attribute "):
            print_status(f"  removed attribute {key.removeprefix('attribute ')!r} {count:,} times")
    return clean


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
    """Write a graph in the form that ``--to`` names and say what was written."""
    from layerdag.codec.formats import Content, words, writer

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
    written = graph
    has_times = "runtime_s" in graph.numbers or graph.units.get("duration") != "ns"
    if args.to == "wfformat" and not has_times:
        seconds = {"runtime_s": graph.numbers["duration"] / 1e9}
        written = replace(graph, numbers={**graph.numbers, **seconds})
    told = writer(args.to, Content.GRAPH)(out, written)
    lost = told if isinstance(told, tuple) else ()  # what the form cannot hold
    print_notes(lost)
    nodes, edges = graph.num_nodes, graph.edge_index_2E.shape[1]
    print_status(f"wrote a graph of {counted(nodes, 'node')} and {counted(edges, 'edge')}: {out}")
    if args.json:
        figures = {"out": str(out), "nodes": nodes, "edges": edges}
        print_json({**figures, "notes": notes_json([*graph.notes, *lost])})
    return 0
