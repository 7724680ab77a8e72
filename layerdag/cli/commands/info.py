"""``layerdag info``: what a trace, workload or graph contains."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import (
    add_groups,
    add_strict,
    notes_json,
    print_figures,
    print_notes,
    strict_code,
)
from layerdag.errors import UsageError
from layerdag.runtime.terminal import counted, one_line, rank_spans

if TYPE_CHECKING:
    from layerdag.runtime.notes import Note
    from layerdag.traces.analysis import GroupSummary, RankSummary, WorkloadSummary

SUMMARY = (
    "Count nodes, types, layers, widths, critical path, communication and memory of traces; nodes, "
    "words and numbers of flow graphs."
)
EXAMPLE = (
    "  layerdag workload gpt2 --data 2 --out traces/gpt2\n"
    "  layerdag info traces/gpt2\n"
    "  layerdag info traces/gpt2.0.et --json\n"
    "  layerdag info workflow.json               (WfFormat and other flow graphs)\n"
    "  layerdag info model.mlir --compute a100-80 --json    (StableHLO or HLO text)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("workload",
        help="prefix of PREFIX.<rank>.et, folder of one such set, or one trace file of any format "
        "that 'layerdag convert' reads, StableHLO and HLO text and flow graphs included; or a "
        "folder of samples in parts")  # fmt: skip
    parser.add_argument("--compute", metavar="HARDWARE",
        help="of StableHLO and HLO: a100-40, a100-80, tpu-v3, or a JSON file with peak_flops, "
        "memory_bandwidth and per_datatype_flops; adds times")  # fmt: skip
    add_groups(parser)
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    """Print the summary."""
    from layerdag.codec.formats import Content, ReadOptions, recognize
    from layerdag.graph.formats.summary import graph_summary
    from layerdag.hardware.devices import Hardware
    from layerdag.samples.summary import run_summary
    from layerdag.traces.analysis import summarize
    from layerdag.traces.hlo.parser import read_program
    from layerdag.traces.hlo.program import summarize_program

    found = recognize(args.workload)
    figures: Mapping[str, Any]
    lines: Iterable[str]
    notes: Sequence[Note] = ()
    if args.compute and found.content is not Content.PROGRAM:
        raise UsageError(
            "--compute is for StableHLO and HLO text; 'layerdag simulate' takes it for traces."
        )
    if found.content is Content.PROGRAM:
        hardware = Hardware.from_name(args.compute) if args.compute else None
        program = summarize_program(read_program(args.workload), hardware)
        figures, lines, notes = program.to_dict(), [str(program)], program.notes
    elif found.content is Content.SAMPLES:
        figures = run_summary(Path(args.workload))
        lines = run_lines(figures)
    elif found.content is Content.GRAPH:
        if args.comm_group:
            raise UsageError(f"{args.workload} is a flow graph, which has no communicator groups.")
        graph = found.graph()
        figures, notes = graph_summary(graph), graph.notes
        lines = graph_lines(figures)
    else:
        workload = found.traces(ReadOptions(args.comm_group))
        summary = summarize(workload)
        figures, lines, notes = summary.to_json(), _lines(summary), workload.notes
    print_figures(args.json, {**figures, "notes": notes_json(notes)}, lines)
    if not args.json:
        print_notes(notes)
    return strict_code(notes, strict=args.strict)


def _lines(summary: "WorkloadSummary") -> Iterator[str]:
    distinct = summary.distinct_traces
    shared = f", {distinct} distinct" if distinct < summary.num_ranks else ""
    version = f", Chakra {summary.version}" if summary.version else ""
    yield (
        f"{summary.source}: {counted(summary.num_ranks, 'rank')}{shared}, "
        f"{counted(summary.nodes, 'node')}{version}"
    )
    if summary.num_ranks == 1:
        yield "One rank: 'layerdag simulate' runs it, ASTRA-sim itself needs two or more."
    alike: list[RankSummary] = []
    for rank in summary.ranks:
        twin = next((m for m in alike if replace(m, ranks=()) == replace(rank, ranks=())), None)
        if twin is None:
            alike.append(rank)
        else:
            alike[alike.index(twin)] = replace(twin, ranks=twin.ranks + rank.ranks)
    for rank in alike[:8]:
        yield f"\nrank {rank_spans(rank.ranks)}"
        yield from (f"  {name:<14}{one_line(text)}" for name, text in _rank_rows(rank))
    if len(alike) > 8:
        yield f"\n... and {len(alike) - 8} more kinds of ranks; --json shows all."
    if summary.groups or summary.messages:
        yield "\ncommunication"
    yield from map(_group_line, summary.groups[:20])
    if len(summary.groups) > 20:
        yield f"  ... and {len(summary.groups) - 20} more groups; --json shows all."
    if summary.messages:
        yield f"  messages: {summary.messages:,} matched, {byte_text(summary.message_bytes)}"
    if summary.num_ranks == 1:  # nothing to match with
        return
    if not (summary.groups or summary.messages):
        yield f"\nno communication: {summary.num_ranks} ranks that never wait for each other"
    if summary.mismatches:
        yield f"\n{len(summary.mismatches)} mismatches, the first ones:"
        yield from (f"  {message}" for message in summary.mismatches[:5])


def _rank_rows(rank: "RankSummary") -> Iterator[tuple[str, str]]:
    edges = f"{rank.data_edges:,} data and {rank.control_edges:,} control edges"
    yield "nodes", f"{rank.nodes:,}, {edges}"
    yield "types", _counts(rank.types)
    width = f"at most {rank.widest_layer:,} wide, {rank.mean_width:g} on average"
    yield "layers", f"{rank.layers:,}, {width}"
    path = f"{rank.critical_path_us:,} us in {counted(rank.critical_path_nodes, 'node')}"
    durations = f"{path}; all durations {rank.duration_us:,} us"
    yield "critical path", durations if rank.duration_us else "no durations stated"
    if rank.communication_us:  # why it is not the makespan of a simulation
        recorded = f"counts {rank.communication_us:,} us of communication as it was recorded"
        yield "", f"({recorded}; 'layerdag simulate' takes the network's time instead)"
    if rank.span_us is not None and rank.span_us > rank.critical_path_us:
        rest = f"{rank.span_us - rank.critical_path_us:,} us of it are gaps"
        yield (
            "measured span",
            f"{rank.span_us:,} us from the first start to the last end; {rest} or work beside the "
            "path, which no simulation repeats",
        )
    yield "tensors", "not stated" if rank.tensor_bytes is None else byte_text(rank.tensor_bytes)
    yield "operators", _counts(dict(islice(rank.operators.items(), 6)))


def _group_line(group: "GroupSummary") -> str:
    name = group.group if group.group == "all ranks" else f"group {group.group}"
    size = f" ({group.size})" if group.size else ""
    sent = byte_text(group.bytes_per_rank)
    return f"  {name}{size}: {_counts(group.collectives)}; {sent} per rank"


def _counts(counts: Mapping[str, int], most: int | None = None) -> str:
    shown = [f"{word or '(none)'} {count:,}" for word, count in islice(counts.items(), most)]
    more = f", {len(counts) - len(shown):,} more" if len(counts) > len(shown) else ""
    return ", ".join(shown) + more or "none"


def byte_text(size: int) -> str:
    """Return a size with a binary unit."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.4g} {unit}"
        value /= 1024
    return f"{value:,.4g} TiB"


_MAX_WORDS = 6


def graph_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary as text."""
    sizes = f"{counted(summary['nodes'], 'node')}, {counted(summary['edges'], 'edge')}"
    yield f"{summary['name']}: {sizes} ({_counts(summary['edge_types'], _MAX_WORDS)})"
    yield f"  {'layers':<14}{summary['layers']:,}, at most {summary['widest_layer']:,} wide"
    for name, counts in summary["categories"].items():
        yield f"  {name:<14}{_counts(counts, _MAX_WORDS)}"
    for name, found in summary["numbers"].items():
        if found["present"]:
            absent = summary["nodes"] - found["present"]
            without = f"; {counted(absent, 'node')} without" if absent else ""
            low, high, total = (f"{found[key]:.6g}" for key in ("min", "max", "sum"))
            yield f"  {name:<14}{low} to {high}, sum {total}{without}"
    for name, value in summary["values"].items():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        yield f"  {name:<14}{shown} (of the graph)"


def run_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary as text."""
    from layerdag.runtime.reading import format_size

    missing = summary["missing_parts"]
    absent = len(missing) + summary.get("more_missing_parts", 0)
    samples = f"{summary['samples']:,} of {summary['num']:,} samples"
    parts = f"{summary['parts'] - absent:,} of {summary['parts']:,} parts ({summary['format']})"
    yield f"{summary['folder']}: {samples} in {parts}, {format_size(summary['bytes'])}"
    if missing:
        shown = ", ".join(summary["missing_because"]) + (", ..." if absent > 3 else "")
        yield f"  {'missing':<14}{counted(absent, 'part')}: {shown}"
    yield f"  {'seeds':<14}{summary['seed']} to {summary['seed'] + summary['num'] - 1}"
    for name in ("nodes", "ranks"):
        if summary[name]:
            yield f"  {name:<14}{_spread_text(summary[name])}"
    yield f"  {'truncated':<14}{summary['truncated']:,}"
    for name, found in summary["conditions"].items():
        is_spread = set(found) == {"min", "mean", "max"}
        text = _spread_text(found) if is_spread else _counts(found, _MAX_WORDS)
        yield f"  {name:<14}{text} (requested)"


def _spread_text(found: Mapping[str, float]) -> str:
    return f"{found['min']:,.6g} to {found['max']:,.6g}, mean {found['mean']:,.6g}"
