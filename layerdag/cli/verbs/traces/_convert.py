"""``layerdag convert``: from any trace format to Chakra or JSON."""

import argparse
import re
import sys
from pathlib import Path

from layerdag._runtime import (
    Limits,
    require_few_bytes,
    require_few_ranks,
    write_bytes,
    written_bytes,
)
from layerdag.errors import UsageError
from layerdag.traces import (
    Format,
    NodeType,
    Workload,
    drop_dangling,
    holds_rank_files,
    pytorch_format,
    read_any,
    require_free_prefix,
    write_workload,
)
from layerdag.traces.anonymize import scrub
from layerdag.traces.chakra import encode_feeder_json, encode_trace_json
from layerdag.traces.pytorch import (
    ImportedJob,
    find_rank_files,
    import_ranks,
    refuse_missing_ranks,
    run_by_every_rank,
    taken_alone,
    write_replay,
)
from layerdag.workloads.hlo import (
    HARDWARE,
    Hardware,
    Split,
    is_program_file,
    program_workload,
    read_program,
)

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

# How the files of the forms that give each rank one end.
ENDINGS = {"et": ".et", "feeder-json": ".json"}


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
    from layerdag.cli.verbs.traces._convert_graph import FORMS, convert_graph
    from layerdag.datasets.files import is_flow_file, read_graph

    if args.to in FORMS[1:] or is_flow_file(args.inputs[0]):
        return convert_graph(args, read_graph(args.inputs[0]))
    limits = Limits(args.max_ranks, args.max_bytes)
    require_few_ranks(args.ranks, limits, f"--ranks {args.ranks}")
    if args.to != "param":
        _require_free(args.to, Path(args.out), overwrite=args.overwrite)
    workload = _read(args)
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
        first = _write(workload, args.to, Path(args.out))
    more = 0 if args.to == "json" else workload.num_ranks - 1
    others = f" and {more:,} more" if more else ""
    _say(f"wrote {_ranks(workload.num_ranks)} with {nodes:,} nodes: {first}{others}")
    return 0


def _communication(workload: Workload) -> int:
    """Return the number of communication nodes of all ranks."""
    return sum(int((trace.type_N >= NodeType.COMM_SEND).sum()) for trace in workload.traces)


def _say(text: str) -> None:
    """Print one line on standard error, where it cannot mix with data."""
    print(text, file=sys.stderr)


def _read(args: argparse.Namespace) -> Workload:
    """Read the inputs: one of any kind, or PyTorch traces of several ranks."""
    if is_program_file(args.inputs[0]):
        return _compiled(args)
    if args.compute:
        raise UsageError(
            f"--compute is for StableHLO and HLO text, which {args.inputs[0]} is not; leave it out."
        )
    job = _import(args)
    if job is not None:
        return _imported(job, args)
    if args.only_rank or args.replicate:
        raise UsageError(
            f"--only-rank and --replicate are for PyTorch's traces, of which {args.inputs[0]} is "
            "none; leave them out."
        )
    return read_any(args.inputs[0], args.comm_group, args.ranks)


def _compiled(args: argparse.Namespace) -> Workload:
    """Read a compiled program and say what its operations were taken for."""
    if not args.compute or len(args.inputs) > 1:
        raise UsageError(
            "A compiled program is converted alone and takes its times from --compute HARDWARE: "
            f"{', '.join(HARDWARE)}, or a JSON file."
        )
    hardware = Hardware.of(args.compute)
    program = read_program(args.inputs[0])
    for note in program.notes:
        _say(f"{program.name}: {note}")
    ranks = args.ranks if args.ranks != 1 else None
    return program_workload(program, hardware, split=Split(args.split), ranks=ranks)


def _import(args: argparse.Namespace) -> ImportedJob | None:
    """Import the inputs if they are PyTorch's, else return None."""
    kinds = {_pytorch_kind(path) for path in args.inputs}
    if kinds == {Format.KINETO} and not args.device:
        return import_ranks((), args.inputs)
    if len(args.inputs) > 1 or args.device or kinds == {Format.PYTORCH_HOST}:
        return import_ranks(args.inputs, args.device)
    files = None if holds_rank_files(args.inputs[0]) else find_rank_files(args.inputs[0])
    return None if files is None else import_ranks(files.hosts, files.devices)


def _pytorch_kind(path: str) -> Format | None:
    """Return the format of a file if it comes from PyTorch."""
    if not Path(path).is_file():
        return None
    return pytorch_format(path)


def _imported(job: ImportedJob, args: argparse.Namespace) -> Workload:
    """Report what the import found and return the workload."""
    for rank, result in enumerate(job.results):
        nodes, known = f"{result.trace.num_nodes:,}", f"{100 * result.joined_fraction:.1f} %"
        found = (
            f"{result.num_host_nodes:,} host nodes became {nodes}; {known} have a measured duration"
            if result.num_host_nodes
            else f"{nodes} nodes from the profile; the operator of {known} of its kernels is known"
        )
        guessed = f"; group of {result.guessed_groups} guessed" if result.guessed_groups else ""
        _say(f"rank {rank}: {found}{guessed}")
    if args.only_rank:
        return _alone(job)
    if args.replicate:
        workload = run_by_every_rank(job)
        _say(f"every one of {workload.num_ranks} ranks runs this trace, with groups of its own")
        return workload
    refuse_missing_ranks(job)
    return job.workload


def _alone(job: ImportedJob) -> Workload:
    """Take one rank alone and say what is lost."""
    workload, lost = taken_alone(job)
    _say(
        f"one rank of {lost.num_ranks}, taken alone: {lost.collectives:,} collectives and "
        f"{lost.messages:,} messages of {lost.num_bytes:,} bytes became work of their measured "
        "time; who they were with, and how long another network would take, is lost"
    )
    return workload


def _without_dangling(workload: Workload) -> Workload:
    """Drop dangling dependencies and say how many."""
    clean, dropped = drop_dangling(workload)
    _say(f"dropped {dropped:,} dependencies on nodes that are not in the trace")
    return clean


def _scrubbed(workload: Workload) -> Workload:
    """Scrub and say what was removed."""
    clean, report = scrub(workload)
    _say(
        f"scrubbed: {report.replaced_names:,} names replaced, {report.kept_names:,} public "
        f"operator names kept; removed {report.removed_io:,} inputs and outputs, "
        f"{report.removed_start_times:,} start times, {report.removed_metadata:,} metadata "
        f"entries; renumbered {report.renumbered_nodes:,} nodes, {report.renamed_groups:,} groups, "
        f"{report.renumbered_tags:,} tags, {report.renumbered_streams:,} streams, "
        f"{report.renumbered_priorities:,} priorities"
    )
    for name, count in report.removed_attributes.items():
        _say(f"  removed attribute {name!r} {count:,} times")
    return clean


def _require_free(kind: str, out: Path, *, overwrite: bool) -> None:
    """Raise UsageError, before anything is read, if what lies at ``out`` may not be replaced."""
    if kind == "json":
        return
    ending = ENDINGS[kind]
    prefix = _prefix(out, ending)
    if kind == "et":
        require_free_prefix(prefix, overwrite=overwrite)
    elif not overwrite and (standing := _feeder_files(prefix)):
        raise UsageError(
            f"{prefix}: a workload lies there already ({standing[0].name}); name another prefix, "
            "or allow that it is replaced with --overwrite."
        )


def _feeder_files(prefix: Path) -> list[Path]:
    """Return the feeder files of any rank at a prefix."""
    found = prefix.parent.glob("*.json") if prefix.parent.is_dir() else ()
    pattern = re.compile(re.escape(prefix.name) + r"\.\d{1,9}\.json")
    return sorted(path for path in found if pattern.fullmatch(path.name))


def _write(workload: Workload, kind: str, out: Path) -> Path:
    """Write the workload in the chosen form, in place of one there; return its first file."""
    if kind == "json":
        write_bytes(out, encode_trace_json(workload))
        return out
    prefix = _prefix(out, ENDINGS[kind])
    if kind == "et":
        write_workload(workload, prefix, overwrite=True)
    else:
        _write_feeder_files(workload, prefix)
    return _file_of(prefix, 0, ENDINGS[kind])


def _write_feeder_files(workload: Workload, prefix: Path) -> None:
    """Write the file of each rank, rank 0 last.

    Raises:
        UsageError: If a file of a rank that the workload lacks is there.
    """
    encoded = [encode_feeder_json(trace) for trace in workload.traces]
    files = {_file_of(prefix, rank, ".json"): data for rank, data in enumerate(encoded)}
    foreign = [path for path in _feeder_files(prefix) if path not in files]
    if foreign:
        raise UsageError(
            f"{foreign[0]}: is there already, but no rank of the new workload, so readers would "
            "mix the two; remove it or name another prefix."
        )
    for path, data in reversed(files.items()):
        write_bytes(path, data)


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
    """Return the file of one rank."""
    return prefix.with_name(f"{prefix.name}.{rank}{ending}")


def _ranks(count: int) -> str:
    """Return a number of ranks in words."""
    return "1 rank" if count == 1 else f"{count:,} ranks"
