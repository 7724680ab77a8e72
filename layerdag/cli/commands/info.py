"""``layerdag info``: what a trace, workload or graph contains."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import add_strict, notes_json, print_notes, strict_code
from layerdag.errors import UsageError
from layerdag.runtime.terminal import counted, one_line

if TYPE_CHECKING:
    import numpy as np

    from layerdag.graph.attributed_graph import AttributedGraph
    from layerdag.runtime.notes import Note
    from layerdag.samples.manifest import PartIndex
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
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    """Print the summary."""
    from layerdag.codec.formats import Content, ReadOptions, recognize
    from layerdag.traces.analysis import summarize

    found = recognize(args.workload)
    if found.content is Content.PROGRAM:
        return _program(args)
    if args.compute:
        raise UsageError(
            "--compute is for StableHLO and HLO text; 'layerdag simulate' takes it for traces."
        )
    if found.content is Content.SAMPLES:
        return _parts(args)
    if found.content is Content.GRAPH:
        if args.comm_group:
            raise UsageError(f"{args.workload} is a flow graph, which has no communicator groups.")
        graph = found.graph()
        figures = graph_summary(graph)
        return _printed(args, figures, graph_lines(figures), graph.notes)
    workload = found.traces(ReadOptions(args.comm_group))
    summary = summarize(workload)
    return _printed(args, summary.to_json(), _lines(summary), workload.notes)


def _parts(args: argparse.Namespace) -> int:
    figures = run_summary(Path(args.workload))
    return _printed(args, figures, run_lines(figures))


def _program(args: argparse.Namespace) -> int:
    from layerdag.traces.hlo.parser import read_program
    from layerdag.traces.hlo.program import Hardware, summarize_program

    hardware = Hardware.from_name(args.compute) if args.compute else None
    found = summarize_program(read_program(args.workload), hardware)
    return _printed(args, found.to_dict(), [str(found)], found.notes)


def _printed(
    args: argparse.Namespace,
    figures: Mapping[str, object],
    lines: Iterable[str],
    notes: Sequence["Note"] = (),
) -> int:
    """Print figures as JSON if that is asked for, else as lines; return the exit code."""
    if args.json:
        json.dump({**figures, "notes": notes_json(notes)}, sys.stdout, indent=1)
        print()
    else:
        print("\n".join(lines))
        print_notes(notes)
    return strict_code(notes, strict=args.strict)


def _lines(summary: "WorkloadSummary") -> list[str]:
    shared = (
        f", {summary.distinct_traces} distinct"
        if summary.distinct_traces < summary.num_ranks
        else ""
    )
    version = f", Chakra {summary.version}" if summary.version else ""
    lines = [
        f"{summary.source}: {counted(summary.num_ranks, 'rank')}{shared}, "
        f"{counted(summary.nodes, 'node')}{version}"
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


def _merged(ranks: "Sequence[RankSummary]") -> "list[RankSummary]":
    from layerdag.traces.analysis import RankSummary

    merged: list[RankSummary] = []
    for rank in ranks:
        twin = next((m for m in merged if replace(m, ranks=()) == replace(rank, ranks=())), None)
        if twin is None:
            merged.append(rank)
        else:
            merged[merged.index(twin)] = replace(twin, ranks=twin.ranks + rank.ranks)
    return merged


def _rank_lines(rank: "RankSummary") -> list[str]:
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
            f"{rank.critical_path_us:,} us in {counted(rank.critical_path_nodes, 'node')}; "
            f"all durations {rank.duration_us:,} us"
            if rank.duration_us
            else "no durations stated",
        ),
        *_recorded(rank),
        *_span(rank),
        ("tensors", memory),
        ("operators", _counts(dict(list(rank.operators.items())[:6]))),
    ]
    lines = (f"  {name:<14}{one_line(text)}" for name, text in rows)
    return [f"rank {rank_ranges(rank.ranks)}", *lines]


def _recorded(rank: "RankSummary") -> list[tuple[str, str]]:
    """Say why the critical path is not the makespan of a simulation, where it is not."""
    if not rank.communication_us:
        return []
    counted = f"counts {rank.communication_us:,} us of communication as it was recorded"
    return [("", f"({counted}; 'layerdag simulate' takes the network's time instead)")]


def _span(rank: "RankSummary") -> list[tuple[str, str]]:
    """Say how long the recorded span is where the critical path does not fill it."""
    if rank.span_us is None or rank.span_us <= rank.critical_path_us:
        return []
    rest = rank.span_us - rank.critical_path_us
    text = f"{rank.span_us:,} us from the first start to the last end; {rest:,} us of it are gaps"
    return [("measured span", f"{text} or work beside the path, which no simulation repeats")]


def _communication_lines(summary: "WorkloadSummary") -> list[str]:
    lines = ["", "communication"] if summary.groups or summary.messages else []
    lines += [_group_line(group) for group in summary.groups[:20]]
    if len(summary.groups) > 20:
        lines.append(f"  ... and {len(summary.groups) - 20} more groups; --json shows all.")
    if summary.messages:
        lines.append(
            f"  messages: {summary.messages:,} matched, {byte_text(summary.message_bytes)}"
        )
    if summary.num_ranks > 1 and not lines:
        lines += ["", f"no communication: {summary.num_ranks} ranks that never wait for each other"]
    # One rank alone has nothing to match with.
    if summary.mismatches and summary.num_ranks > 1:
        lines += ["", f"{len(summary.mismatches)} mismatches, the first ones:"]
        lines += [f"  {message}" for message in summary.mismatches[:5]]
    return lines


def _group_line(group: "GroupSummary") -> str:
    name = group.group if group.group == "all ranks" else f"group {group.group}"
    size = f" ({group.size})" if group.size else ""
    sent = byte_text(group.bytes_per_rank)
    return f"  {name}{size}: {_counts(group.collectives)}; {sent} per rank"


def _counts(counts: Mapping[str, int]) -> str:
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


_MOST_WORDS = 6
_MOST_MISSING = 1000
"""Names of missing parts that are listed."""


def graph_summary(graph: "AttributedGraph") -> dict[str, Any]:
    """Return what a graph contains as plain JSON types."""
    import numpy as np

    from layerdag.graph.formats.program_json import CALL, is_program, operator_of

    words = dict(graph.categories)
    if is_program(graph):  # of patterns of arguments hardly two are the same
        words = {"operators": list(map(operator_of, words[CALL]))}
    width_L = np.bincount(graph.layer_N)
    types = Counter(graph.edge_type_names[code] for code in graph.edge_type_E.tolist())
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.edge_index_2E.shape[1],
        "edge_types": dict(types.most_common()),
        "layers": width_L.size,
        "widest_layer": int(width_L.max(initial=0)),
        "categories": {name: dict(Counter(column).most_common()) for name, column in words.items()},
        "numbers": {name: _range(value_N) for name, value_N in graph.numbers.items()},
        "values": dict(graph.conditions),
    }


def _range(value_N: "np.ndarray") -> dict[str, float | int | None]:
    import numpy as np

    there = value_N[~np.isnan(value_N)]
    if not there.size:
        return {"present": 0, "min": None, "max": None, "sum": None}
    low, high, total = float(there.min()), float(there.max()), float(there.sum())
    return {"present": int(there.size), "min": low, "max": high, "sum": total}


def graph_lines(summary: dict[str, Any]) -> list[str]:
    """Return the summary as text."""
    types = _counts_graph(summary["edge_types"])
    sizes = f"{counted(summary['nodes'], 'node')}, {counted(summary['edges'], 'edge')}"
    lines = [f"{summary['name']}: {sizes} ({types})"]
    lines.append(f"  {'layers':<14}{summary['layers']:,}, at most {summary['widest_layer']:,} wide")
    for name, counts in summary["categories"].items():
        lines.append(f"  {name:<14}{_counts_graph(counts)}")
    for name, found in summary["numbers"].items():
        if found["present"]:
            absent = summary["nodes"] - found["present"]
            without = f"; {counted(absent, 'node')} without" if absent else ""
            low, high, total = (f"{found[key]:.6g}" for key in ("min", "max", "sum"))
            lines.append(f"  {name:<14}{low} to {high}, sum {total}{without}")
    for name, value in summary["values"].items():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        lines.append(f"  {name:<14}{shown} (of the graph)")
    return lines


def _counts_graph(counts: dict[str, int]) -> str:
    shown = [f"{word or '(none)'} {count:,}" for word, count in list(counts.items())[:_MOST_WORDS]]
    more = f", {len(counts) - _MOST_WORDS:,} more" if len(counts) > _MOST_WORDS else ""
    return ", ".join(shown) + more or "none"


def run_summary(folder: Path) -> dict[str, Any]:
    """Return what a folder of parts holds as plain JSON types; one index is held at a time.

    Raises:
        DataError: If the file of the run is damaged.
    """
    from layerdag.samples.manifest import SampleRun

    run, figures = SampleRun.read(folder), _Figures()
    there = set()
    for index in run.parts_at(folder):
        figures.add(index)
        there.add(index.part)
    absent = (part for part in range(run.num_parts) if part not in there)
    missing = [run.file_of(part) for part in islice(absent, _MOST_MISSING)]
    return {
        "folder": str(folder),
        "format": run.file_format,
        "seed": run.seed,
        "num": run.num,
        "parts": run.num_parts,
        "missing_parts": missing,
        **(
            {"more_missing_parts": more}
            if (more := run.num_parts - len(there) - len(missing))
            else {}
        ),
        **({"missing_because": run.absent(folder, 3)} if missing else {}),
        **figures.to_json(),
    }


class _Figures:
    def __init__(self) -> None:
        self._nodes, self._ranks = _Range(), _Range()
        self._truncated = self._bytes = 0
        self._words: dict[str, Counter[str]] = {}
        self._numbers: dict[str, _Range] = {}

    def add(self, index: "PartIndex") -> None:
        """Count the samples of one part."""
        self._bytes += index.num_bytes
        for entry in index.samples:
            self._nodes.add(entry["nodes"])
            self._truncated += bool(entry["truncated"])
            if entry.get("ranks") is not None:
                self._ranks.add(entry["ranks"])
            for name, value in entry["conditions"].items():
                if isinstance(value, str):
                    self._words.setdefault(name, Counter())[value] += 1
                else:
                    self._numbers.setdefault(name, _Range()).add(value)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "samples": self._nodes.count,
            "bytes": self._bytes,
            "truncated": self._truncated,
            "nodes": self._nodes.to_json(),
            "ranks": self._ranks.to_json(),
            "conditions": {
                **{name: dict(counts.most_common()) for name, counts in self._words.items()},
                **{name: found.to_json() for name, found in self._numbers.items()},
            },
        }


class _Range:
    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.low, self.high = float("inf"), float("-inf")

    def add(self, value: float) -> None:
        """Count one number."""
        self.count, self.total = self.count + 1, self.total + value
        self.low, self.high = min(self.low, value), max(self.high, value)

    def to_json(self) -> dict[str, float] | None:
        """Return it as plain JSON, None without a number."""
        if not self.count:
            return None
        return {"min": self.low, "mean": self.total / self.count, "max": self.high}


def run_lines(summary: dict[str, Any]) -> list[str]:
    """Return the summary as text."""
    from layerdag.runtime.reading import format_size

    missing = summary["missing_parts"]
    absent = len(missing) + summary.get("more_missing_parts", 0)
    there = summary["parts"] - absent
    samples = f"{summary['samples']:,} of {summary['num']:,} samples"
    parts = f"{there:,} of {summary['parts']:,} parts ({summary['format']})"
    size = format_size(summary["bytes"])
    lines = [f"{summary['folder']}: {samples} in {parts}, {size}"]
    if missing:
        shown = ", ".join(summary["missing_because"]) + (", ..." if absent > 3 else "")
        lines.append(f"  {'missing':<14}{absent:,} {'parts' if absent > 1 else 'part'}: {shown}")
    last = summary["seed"] + summary["num"] - 1
    lines.append(f"  {'seeds':<14}{summary['seed']} to {last}")
    for name in ("nodes", "ranks"):
        if summary[name]:
            lines.append(f"  {name:<14}{_range_text(summary[name])}")
    lines.append(f"  {'truncated':<14}{summary['truncated']:,}")
    for name, found in summary["conditions"].items():
        is_range = set(found) == {"min", "mean", "max"}
        text = _range_text(found) if is_range else _counts_parts(found)
        lines.append(f"  {name:<14}{text} (requested)")
    return lines


def _range_text(found: dict[str, float]) -> str:
    return f"{found['min']:,.6g} to {found['max']:,.6g}, mean {found['mean']:,.6g}"


def _counts_parts(counts: dict[str, int]) -> str:
    shown = [f"{word} {count:,}" for word, count in list(counts.items())[:_MOST_WORDS]]
    more = f", {len(counts) - _MOST_WORDS:,} more" if len(counts) > _MOST_WORDS else ""
    return ", ".join(shown) + more
