"""``layerdag info``: what a trace or workload contains."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from layerdag.errors import UsageError
from layerdag.traces import read_any
from layerdag.traces.analysis import GroupSummary, RankSummary, WorkloadSummary, summarize
from layerdag.workloads.hlo import Hardware, is_program_file, read_program, summarize_program

SUMMARY = (
    "Count nodes, types, layers, widths, critical path, communication and memory of traces; nodes, "
    "words and numbers of flow graphs."
)
EXAMPLE = (
    "  layerdag info traces/run\n"
    "  layerdag info traces/run.0.et --json\n"
    "  layerdag info workflow.json               (WfFormat and other flow graphs)\n"
    "  layerdag info model.mlir --compute a100-80 --json    (StableHLO or HLO text)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "workload",
        help="prefix of PREFIX.<rank>.et, folder of one such set, or one trace file of any format "
        "that 'layerdag convert' reads, StableHLO and HLO text and flow graphs included; or a "
        "folder of samples in parts",
    )
    parser.add_argument(
        "--compute",
        metavar="HARDWARE",
        help="of StableHLO and HLO: a100-40, a100-80, tpu-v3, or a JSON file with peak_flops, "
        "memory_bandwidth and per_datatype_flops; adds times",
    )
    parser.add_argument(
        "--comm-group", metavar="FILE", help='communicator groups: JSON {"<group>": [rank, ...]}'
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Print the summary."""
    if is_program_file(args.workload):
        return _program(args)
    from layerdag.datasets.files import is_flow_file
    from layerdag.datasets.samples import is_run

    if args.compute:
        raise UsageError(
            "--compute is for StableHLO and HLO text; 'layerdag simulate' takes it for traces."
        )
    if is_run(args.workload):
        return _parts(args)
    if is_flow_file(args.workload):
        return _graph(args)
    summary = summarize(read_any(args.workload, args.comm_group))
    return _printed(args, summary.to_json(), _lines(summary))


def _graph(args: argparse.Namespace) -> int:
    """Print the figures of a flow graph."""
    from layerdag.cli.verbs.traces.inspecting import graph_lines, graph_summary
    from layerdag.datasets.files import read_flow

    figures = graph_summary(read_flow(args.workload))
    return _printed(args, figures, graph_lines(figures))


def _parts(args: argparse.Namespace) -> int:
    """Print the figures of samples in parts."""
    from layerdag.cli.verbs.traces.inspecting import run_lines, run_summary

    figures = run_summary(Path(args.workload))
    return _printed(args, figures, run_lines(figures))


def _program(args: argparse.Namespace) -> int:
    """Print the figures of a compiled program."""
    hardware = Hardware.of(args.compute) if args.compute else None
    found = summarize_program(read_program(args.workload), hardware)
    return _printed(args, found.to_dict(), [str(found)])


def _printed(args: argparse.Namespace, figures: Mapping[str, object], lines: Iterable[str]) -> int:
    """Print figures as JSON if that is asked for, else as lines."""
    if args.json:
        json.dump(figures, sys.stdout, indent=1)
        print()
    else:
        print("\n".join(lines))
    return 0


def _lines(summary: WorkloadSummary) -> list[str]:
    """Return the summary as text."""
    shared = (
        f", {summary.distinct_traces} distinct"
        if summary.distinct_traces < summary.num_ranks
        else ""
    )
    version = f", Chakra {summary.version}" if summary.version else ""
    plural = "s" if summary.num_ranks != 1 else ""
    lines = [
        f"{summary.source}: {summary.num_ranks} rank{plural}{shared}, "
        f"{summary.nodes:,} nodes{version}"
    ]
    if summary.num_ranks == 1:
        lines.append("One rank: 'layerdag simulate' runs it, ASTRA-sim itself needs two or more.")
    alike = _merged(summary.ranks)
    for rank in alike[:8]:
        lines += ["", *_rank_lines(rank)]
    if len(alike) > 8:
        lines += ["", f"... and {len(alike) - 8} more kinds of ranks; --json shows all."]
    lines += _communication_lines(summary)
    return lines


def _merged(ranks: Sequence[RankSummary]) -> list[RankSummary]:
    """Join ranks whose figures are all the same."""
    merged: list[RankSummary] = []
    for rank in ranks:
        twin = next((m for m in merged if replace(m, ranks=()) == replace(rank, ranks=())), None)
        if twin is None:
            merged.append(rank)
        else:
            merged[merged.index(twin)] = replace(twin, ranks=twin.ranks + rank.ranks)
    return merged


def _rank_lines(rank: RankSummary) -> list[str]:
    """Return the lines of one distinct trace."""
    memory = "not stated" if rank.tensor_bytes is None else byte_text(rank.tensor_bytes)
    rows = [
        (
            "nodes",
            f"{rank.nodes:,}, {rank.data_edges:,} data and {rank.control_edges:,} control edges",
        ),
        ("types", _counts(rank.types)),
        (
            "layers",
            f"{rank.layers:,}, at most {rank.widest_layer:,} wide, {rank.mean_width:g} on average",
        ),
        (
            "critical path",
            f"{rank.critical_path_us:,} us in {rank.critical_path_nodes:,} nodes; "
            f"all durations {rank.duration_us:,} us"
            if rank.duration_us
            else "no durations stated",
        ),
        *_recorded(rank),
        ("tensors", memory),
        ("operators", _counts(dict(list(rank.operators.items())[:6]))),
    ]
    return [f"rank {rank_ranges(rank.ranks)}", *(f"  {name:<14}{text}" for name, text in rows)]


def _recorded(rank: RankSummary) -> list[tuple[str, str]]:
    """Say why the critical path is not the makespan of a simulation, where it is not."""
    if not rank.communication_us:
        return []
    counted = f"counts {rank.communication_us:,} us of communication as it was recorded"
    return [("", f"({counted}; 'layerdag simulate' takes the network's time instead)")]


def _communication_lines(summary: WorkloadSummary) -> list[str]:
    """Return the lines about groups, messages and mismatches."""
    lines = ["", "communication"] if summary.groups or summary.messages else []
    lines += [_group_line(group) for group in summary.groups[:20]]
    if len(summary.groups) > 20:
        lines.append(f"  ... and {len(summary.groups) - 20} more groups; --json shows all.")
    if summary.messages:
        lines.append(
            f"  messages: {summary.messages:,} matched, {byte_text(summary.message_bytes)}"
        )
    # One rank alone has nothing to match with.
    if summary.mismatches and summary.num_ranks > 1:
        lines += ["", f"{len(summary.mismatches)} mismatches, the first ones:"]
        lines += [f"  {message}" for message in summary.mismatches[:5]]
    return lines


def _group_line(group: GroupSummary) -> str:
    """Return the line of one group."""
    name = group.group if group.group == "all ranks" else f"group {group.group}"
    size = f" ({group.size})" if group.size else ""
    sent = byte_text(group.bytes_per_rank)
    return f"  {name}{size}: {_counts(group.collectives)}; {sent} per rank"


def _counts(counts: Mapping[str, int]) -> str:
    """Return ``name count, name count``."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def byte_text(size: int) -> str:
    """Return a size with a binary unit."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.4g} {unit}"
        value /= 1024
    return f"{value:,.4g} TiB"


def rank_ranges(ranks: tuple[int, ...]) -> str:
    """Return ranks as text with runs joined: ``0-3, 5``."""
    parts = []
    breaks = [at for at in range(1, len(ranks)) if ranks[at] != ranks[at - 1] + 1]
    for begin, end in zip([0, *breaks], [*breaks, len(ranks)], strict=True):
        first, last = ranks[begin], ranks[end - 1]
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ", ".join(parts)
