"""ONE registry: sniff, read any file, HLO too."""

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.errors import GraphError, TraceError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.dot import read_dot
from layerdag.graph.formats.graphml import read_graphml, read_node_link
from layerdag.graph.formats.registry import FlowFormat, flow_format, read_json
from layerdag.graph.formats.wfformat import read_wfformat
from layerdag.runtime.reading import read_whole, require_parsable
from layerdag.traces.astra_text import PARALLELISMS, parse_text, text_to_workload
from layerdag.traces.chakra.files import decode_trace
from layerdag.traces.chakra.json_forms import FORMAT, decode_feeder_json, decode_trace_json
from layerdag.traces.chakra.workload import holds_rank_files, read_groups, read_workload
from layerdag.traces.hlo.parser import is_program_file, read_program
from layerdag.traces.hlo.program import HARDWARE, Hardware
from layerdag.traces.hlo.traces import DeviceSplit, program_workload
from layerdag.traces.pytorch.importer import import_pytorch
from layerdag.traces.pytorch.ranks import (
    _JSON_KEYS,
    Format,
    ImportedJob,
    find_rank_files,
    import_ranks,
    import_single_rank,
    pytorch_format,
    refuse_missing_ranks,
    replicate_rank,
)
from layerdag.traces.trace import Workload

_TEXT_START = re.compile(rb"\s*(" + "|".join(PARALLELISMS).encode() + rb")\b[^\n]*\n\s*\d+\s*\n")


def detect_format(data: bytes, source: str) -> Format:
    """Return the format of an unpacked file.

    Raises:
        TraceError: If the file is JSON or text of an unknown kind. Other unknown content counts as
            Chakra, whose reader says what is wrong with it.
    """
    start = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] in (b"{", b"["):
        if f'"format": "{FORMAT}"'.encode() in start:
            return Format.LAYERDAG_JSON
        for kind, keys in _JSON_KEYS:
            if all(key in data for key in keys):
                return kind
        raise TraceError(
            f"{source}: is JSON, but neither a PyTorch execution trace, a Kineto profile, nor a "
            "Chakra JSON; name another file."
        )
    if source.endswith(".py"):
        raise TraceError(
            f"{source}: is a Python program and no trace; 'layerdag collect --out traces/mine "
            f"{source}' runs it and writes its trace."
        )
    if _TEXT_START.match(data):
        return Format.ASTRA_TEXT
    if len(start) > 16 and all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start):
        raise TraceError(
            f"{source}: is a text, but no workload of ASTRA-sim (parallelism on line 1, number of "
            "layers on line 2); name another file."
        )
    return Format.CHAKRA


def read_any(
    location: str | Path, groups_file: str | Path | None = None, num_ranks: int = 1
) -> Workload:
    """Read a workload of any supported format.

    Args:
        location: A file of any ``Format``, a prefix of ``PREFIX.<rank>.et``, a folder with one
            such set, or a folder or prefix of PyTorch traces, one host trace or profile per rank.
        groups_file: JSON with communicator groups, as for ``workload.read_workload``.
        num_ranks: For an ASTRA-sim text workload, which does not say: for how many ranks.

    Raises:
        TraceError: If nothing is found, or the content is unknown, damaged or incomplete.
    """
    location = Path(location)
    if not location.is_file():
        job = None if holds_rank_files(location) else _import_job(location)
        return read_workload(location, groups_file) if job is None else job
    workload = _read_file(location, num_ranks)
    if groups_file:
        groups = read_groups(groups_file, workload.num_ranks)
        workload = Workload(workload.traces, groups, workload.source)
    return workload


def _read_file(path: Path, num_ranks: int) -> Workload:
    """Read one file of any format; what PyTorch wrote is never held as a whole."""
    written_by_pytorch = pytorch_format(path)
    if written_by_pytorch is not None:
        return _import_pytorch(written_by_pytorch, path)
    data, source = read_whole(path, error=TraceError), str(path)
    kind = detect_format(data, source)
    if kind is Format.CHAKRA:
        return Workload((decode_trace(data, source),), {}, source)
    if kind in (Format.FEEDER_JSON, Format.LAYERDAG_JSON, Format.ASTRA_TEXT):
        require_parsable(data, source, TraceError)
    if kind is Format.FEEDER_JSON:
        return Workload((decode_feeder_json(data, source),), {}, source)
    if kind is Format.LAYERDAG_JSON:
        return decode_trace_json(data, source)
    if kind is Format.ASTRA_TEXT:
        return text_to_workload(parse_text(data, source), num_ranks, source)
    return _import_pytorch(kind, path)


def _import_pytorch(kind: Format, path: Path) -> Workload:
    """Import a host trace or a profile; `pytorch.import_pytorch` also takes both together."""
    result = import_pytorch(None, path) if kind is Format.KINETO else import_pytorch(path)
    return Workload((result.trace,), result.groups, str(path))


def _import_job(location: Path) -> Workload | None:
    """Import a folder or prefix of PyTorch traces; None if it has none."""
    files = find_rank_files(location)
    if files is None:
        return None
    job = import_ranks(files.hosts, files.devices)
    refuse_missing_ranks(job)
    return job.workload


READERS: Mapping[FlowFormat, Callable[[str | Path], AttributedGraph]] = {
    FlowFormat.JSON: read_json,
    FlowFormat.GRAPHML: read_graphml,
    FlowFormat.WFFORMAT: read_wfformat,
    FlowFormat.NODE_LINK: read_node_link,
    FlowFormat.DOT: read_dot,
}


def is_flow_file(path: str | Path) -> bool:
    """Return whether a path names a file of a flow graph, rather than anything with traces."""
    return Path(path).is_file() and flow_format(path) is not None


def read_flow(path: str | Path) -> AttributedGraph:
    """Read a file of a flow graph in whatever format it has.

    Raises:
        GraphError: If it is no flow graph, damaged, or contradicts itself.
    """
    kind = flow_format(path)
    if kind is None:
        raise GraphError(
            f"{path}: is no flow graph; known are {', '.join(each.value for each in FlowFormat)}."
        )
    return READERS[kind](path)


def read_graph(path: str | Path) -> AttributedGraph:
    """Read one workload (prefix, folder or file) or one flow graph.

    Raises:
        DataError: If it cannot be read, or its ranks contradict each other.
    """
    path = Path(path)
    if is_flow_file(path):
        return read_flow(path)
    workload = read_any(path)
    return job_graph(str(path), rank_classes(workload), workload.groups, {})


def read(path: str | Path) -> Workload | AttributedGraph:
    """Read a workload or a flow graph of any format, detected from the content.

    Args:
        path: A trace file of any format, a prefix of ``PREFIX.<rank>.et``, a folder with one such
            set or with PyTorch traces, or a flow graph (``.graphml``, layerdag's ``.json``).

    Returns:
        A ``Workload`` for traces, an attributed ``AttributedGraph`` for a flow graph.

    Raises:
        DataError: If nothing is there, or the content is unknown, damaged or incomplete.
    """
    return read_graph(path) if is_flow_file(path) else read_any(path)


def read_inputs(args: argparse.Namespace) -> Workload:
    """Read the inputs: one of any kind, or PyTorch traces of several ranks.

    Raises:
        UsageError: If an option does not go with them.
        DataError: If they cannot be read.
    """
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
    hardware = Hardware.from_name(args.compute)
    program = read_program(args.inputs[0])
    for note in program.notes:
        print_status(f"{program.name}: {note}")
    ranks = args.ranks if args.ranks != 1 else None
    return program_workload(program, hardware, split=DeviceSplit(args.split), ranks=ranks)


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
        print_status(f"rank {rank}: {found}{guessed}")
    if args.only_rank:
        return _alone(job)
    if args.replicate:
        workload = replicate_rank(job)
        print_status(
            f"every one of {workload.num_ranks} ranks runs this trace, with groups of its own"
        )
        return workload
    refuse_missing_ranks(job)
    return job.workload


def _alone(job: ImportedJob) -> Workload:
    """Take one rank alone and say what is lost."""
    workload, lost = import_single_rank(job)
    print_status(
        f"one rank of {lost.num_ranks}, taken alone: {lost.collectives:,} collectives and "
        f"{lost.messages:,} messages of {lost.num_bytes:,} bytes became work of their measured "
        "time; who they were with, and how long another network would take, is lost"
    )
    return workload


def print_status(text: str) -> None:
    """Print one line on standard error, where it cannot mix with data."""
    sys.stderr.write(f"{text}\n")
