"""What ``layerdag convert`` reads: one place of any kind, or PyTorch traces of several ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from layerdag.codec.formats import Content, ReadOptions, Recognized, with_undescribed_groups
from layerdag.errors import UsageError
from layerdag.hardware.devices import HARDWARE, Hardware
from layerdag.traces.analysis import summarize_trace
from layerdag.traces.hlo.parser import read_program
from layerdag.traces.hlo.program import DeviceSplit, program_workload
from layerdag.traces.pytorch.ranks import (
    ImportedJob,
    PyTorchFile,
    import_ranks,
    import_single_rank,
    pytorch_format,
    refuse_missing_ranks,
    replicate_rank,
)
from layerdag.traces.trace import NodeType, Trace, Workload


@dataclass(frozen=True)
class Inputs:
    """The input of ``layerdag convert``: one place of any kind, or PyTorch traces of several ranks.

    There is a Kineto profile for each PyTorch trace. ``only_rank`` takes one rank of PyTorch alone,
    ``replicate`` lets every rank run it.
    """

    paths: Sequence[str]
    profiles: Sequence[str] = ()
    options: ReadOptions = field(default_factory=ReadOptions)
    split: DeviceSplit = DeviceSplit.LINEAR
    only_rank: bool = False
    replicate: bool = False


def read_inputs(found: Recognized, inputs: Inputs, report: Callable[[str], None]) -> Workload:
    """Read one place of any kind, or PyTorch traces of several ranks.

    ``found`` is the first of the inputs; ``report`` is called with a line for each thing worth
    knowing. Raises UsageError if an option does not go with them and DataError if they cannot be
    read.
    """
    first = inputs.paths[0]
    options = inputs.options
    if found.content is Content.PROGRAM:
        if not options.compute or len(inputs.paths) > 1:
            raise UsageError(
                "A compiled program is converted alone and takes its times from --compute "
                f"HARDWARE: {', '.join(HARDWARE)}, or a JSON file."
            )
        hardware = Hardware.from_name(options.compute)
        ranks = options.num_ranks if options.num_ranks != 1 else None
        return program_workload(read_program(first), hardware, split=inputs.split, ranks=ranks)
    if options.compute:
        raise UsageError(
            f"--compute is for StableHLO and HLO text, which {first} is not; leave it out."
        )
    job = _import(found, inputs)
    if job is not None:
        return _imported(job, inputs, report)
    if inputs.only_rank or inputs.replicate:
        raise UsageError(
            f"--only-rank and --replicate are for PyTorch's traces, of which {first} is none; "
            "leave them out."
        )
    return found.traces(options)


def _import(found: Recognized, inputs: Inputs) -> ImportedJob | None:
    """Import the inputs if they are PyTorch's, else return None."""
    paths = [Path(path) for path in inputs.paths]
    kinds = {pytorch_format(path) if path.is_file() else None for path in paths}
    if kinds == {PyTorchFile.KINETO} and not inputs.profiles:
        return import_ranks((), paths)
    if len(paths) > 1 or inputs.profiles or kinds == {PyTorchFile.HOST}:
        return import_ranks(paths, inputs.profiles, keep_arguments=True)
    files = None if found.found.is_file else found.found.rank_files
    if files is None:
        return None
    return import_ranks(files.hosts, files.devices, files.notes, keep_arguments=True)


def _imported(job: ImportedJob, inputs: Inputs, report: Callable[[str], None]) -> Workload:
    for rank, result in enumerate(job.results):
        nodes, known = f"{result.trace.num_nodes:,}", f"{100 * result.joined_fraction:.1f} %"
        found = (
            f"{result.num_host_nodes:,} host nodes became {nodes}; {known} have a measured duration"
            if result.num_host_nodes
            else f"{nodes} nodes from the profile; the operator of {known} of its kernels is known"
        )
        guessed = f"; group of {result.guessed_groups} guessed" if result.guessed_groups else ""
        report(f"rank {rank}: {found}{guessed}{_gaps(result.trace)}")
    if inputs.only_rank:
        workload, lost = import_single_rank(job)
        report(
            f"one rank of {lost.num_ranks}, taken alone: {lost.collectives:,} collectives and "
            f"{lost.messages:,} messages of {lost.num_bytes:,} bytes became work of their measured "
            "time; who they were with, and how long another network would take, is lost"
        )
        return workload
    if inputs.replicate:
        workload = replicate_rank(job)
        report(f"every one of {workload.num_ranks} ranks runs this trace, with groups of its own")
        return workload
    refuse_missing_ranks(job)
    return with_undescribed_groups(job.workload)


def _gaps(trace: Trace) -> str:
    summary = summarize_trace(trace)
    if summary.span_us is None or summary.span_us <= summary.critical_path_us:
        return ""
    on_device = (trace.integers("is_cpu_op")[0] == 0) & (trace.type_N != NodeType.METADATA)
    busy_us = int(trace.duration_us_N[on_device].sum())
    return (
        f"; measured span {summary.span_us:,} us, device busy {busy_us:,} us, critical path "
        f"{summary.critical_path_us:,} us: 'simulate --host measured' also replays the gaps "
        "between the calls of the host"
    )
