"""``layerdag convert``: from any trace format to Chakra or JSON."""

import argparse
from pathlib import Path

from layerdag._runtime import Limits, require_few_bytes, require_few_ranks, written_bytes
from layerdag.cli.verbs.traces.converting import (
    read_inputs,
    require_free,
    say,
    write_traces,
)
from layerdag.traces import NodeType, Workload, drop_dangling
from layerdag.traces.anonymize import scrub
from layerdag.traces.pytorch import write_replay

SUMMARY = "Convert traces between formats; scrub what may not be shared."
EXAMPLE = (
    "  layerdag convert host.0.json host.1.json --device dev.0.json dev.1.json --out run/job\n"
    "  layerdag convert folder_of_host_traces_and_profiles --out run/job\n"
    "  layerdag convert old_trace.et --out new/job            (any Chakra generation to 1.0.0)\n"
    "  layerdag convert Resnet50.txt --ranks 8 --out run/resnet\n"
    "  layerdag convert model.mlir --compute a100-80 --out run/model  (StableHLO or HLO text)\n"
    "  layerdag convert workflow.dot --to wfformat --out workflow.json  (flow graphs)\n"
    "  layerdag convert run/job --to param --out replay       (for PARAM's comm_replay)\n"
    "  layerdag convert run/job --scrub --out shared/job"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
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
        choices=("et", "json", "feeder-json", "param", "graphml", "wfformat", "dot"),
        default="et",
        help="et: Chakra 1.0.0 as both feeders and ASTRA-sim read it (default); json: without "
        "loss; feeder-json: for Chakra's feeder v1; param: a folder of rank-<r>.json, whose "
        "communication PARAM's comm_replay runs on a cluster; graphml, wfformat, dot: of a flow "
        "graph, or of the graph of a job",
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


def run(args: argparse.Namespace) -> int:
    """Read, scrub if asked, and write."""
    from layerdag.cli.verbs.traces.converting import FORMS, convert_graph
    from layerdag.datasets.files import is_flow_file, read_graph

    if args.to in FORMS[1:] or is_flow_file(args.inputs[0]):
        return convert_graph(args, read_graph(args.inputs[0]))
    limits = Limits(args.max_ranks, args.max_bytes)
    require_few_ranks(args.ranks, limits, f"--ranks {args.ranks}")
    if args.to != "param":
        require_free(args.to, Path(args.out), overwrite=args.overwrite)
    workload = read_inputs(args)
    if args.drop_dangling:
        workload = _without_dangling(workload)
    if args.scrub:
        workload = _scrubbed(workload)
    nodes = sum(trace.num_nodes for trace in workload.traces)
    if args.to != "json":
        require_few_ranks(workload.num_ranks, limits, workload.source)
        written = _communication(workload) if args.to == "param" else nodes
        require_few_bytes(written_bytes(written, args.to), limits, workload.source)
    if args.to == "param":
        first = write_replay(workload, args.out, overwrite=args.overwrite)[0]
    else:
        first = write_traces(workload, args.to, Path(args.out))
    more = 0 if args.to == "json" else workload.num_ranks - 1
    others = f" and {more:,} more" if more else ""
    say(f"wrote {_ranks(workload.num_ranks)} with {nodes:,} nodes: {first}{others}")
    return 0


def _communication(workload: Workload) -> int:
    """Return the number of communication nodes of all ranks."""
    return sum(int((trace.type_N >= NodeType.COMM_SEND).sum()) for trace in workload.traces)


def _without_dangling(workload: Workload) -> Workload:
    """Drop dangling dependencies and say how many."""
    clean, dropped = drop_dangling(workload)
    say(f"dropped {dropped:,} dependencies on nodes that are not in the trace")
    return clean


def _scrubbed(workload: Workload) -> Workload:
    """Scrub and say what was removed."""
    clean, report = scrub(workload)
    say(
        f"scrubbed: {report.replaced_names:,} names replaced, {report.kept_names:,} public "
        f"operator names kept; removed {report.removed_io:,} inputs and outputs, "
        f"{report.removed_start_times:,} start times, {report.removed_metadata:,} metadata "
        f"entries; renumbered {report.renumbered_nodes:,} nodes, {report.renamed_groups:,} groups, "
        f"{report.renumbered_tags:,} tags, {report.renumbered_streams:,} streams, "
        f"{report.renumbered_priorities:,} priorities"
    )
    for name, count in report.removed_attributes.items():
        say(f"  removed attribute {name!r} {count:,} times")
    return clean


def _ranks(count: int) -> str:
    """Return a number of ranks in words."""
    return "1 rank" if count == 1 else f"{count:,} ranks"
