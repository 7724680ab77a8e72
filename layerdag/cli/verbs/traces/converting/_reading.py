"""What ``layerdag convert`` reads: one input of any kind, or PyTorch traces of several ranks."""

import argparse
import sys
from pathlib import Path

from layerdag.errors import UsageError
from layerdag.traces import Format, Workload, holds_rank_files, pytorch_format, read_any
from layerdag.traces.pytorch import (
    ImportedJob,
    find_rank_files,
    import_ranks,
    refuse_missing_ranks,
    run_by_every_rank,
    taken_alone,
)
from layerdag.workloads.hlo import (
    HARDWARE,
    Hardware,
    Split,
    is_program_file,
    program_workload,
    read_program,
)


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
    hardware = Hardware.of(args.compute)
    program = read_program(args.inputs[0])
    for note in program.notes:
        say(f"{program.name}: {note}")
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
        say(f"rank {rank}: {found}{guessed}")
    if args.only_rank:
        return _alone(job)
    if args.replicate:
        workload = run_by_every_rank(job)
        say(f"every one of {workload.num_ranks} ranks runs this trace, with groups of its own")
        return workload
    refuse_missing_ranks(job)
    return job.workload


def _alone(job: ImportedJob) -> Workload:
    """Take one rank alone and say what is lost."""
    workload, lost = taken_alone(job)
    say(
        f"one rank of {lost.num_ranks}, taken alone: {lost.collectives:,} collectives and "
        f"{lost.messages:,} messages of {lost.num_bytes:,} bytes became work of their measured "
        "time; who they were with, and how long another network would take, is lost"
    )
    return workload


def say(text: str) -> None:
    """Print one line on standard error, where it cannot mix with data."""
    print(text, file=sys.stderr)
