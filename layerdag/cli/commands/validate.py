"""``layerdag validate``: check traces and graphs against the rules that consumers rely on."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import (
    add_groups,
    finding_json,
    finding_line,
    notes_json,
    print_figures,
    print_notes,
)
from layerdag.errors import DataError, TraceError, UsageError
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.graph.attributed_graph import AttributedGraph
    from layerdag.runtime.notes import Note
    from layerdag.samples.stored import StoredSample
    from layerdag.validation.fixes import FixedWorkload
    from layerdag.validation.rules import Finding

SUMMARY = "Check traces and graphs against the rules that consumers rely on."
EXAMPLE = (
    "  layerdag workload gpt2 --data 2 --out traces/gpt2\n"
    "  layerdag validate traces/gpt2           # traces/gpt2.<rank>.et, all ranks together\n"
    "  layerdag validate samples --json        # every workload below a folder\n"
    "  layerdag validate --rules               # what is checked, and why\n"
    "  layerdag validate traces/gpt2 --fix --out fixed/gpt2    # repair what has one safe answer"
)


@dataclass(frozen=True)
class Checked:
    """A workload or graph that was checked, or a part with many of them.

    Attributes:
        target: Its path.
        findings: What is wrong.
        num_ranks: Ranks of a workload; None for anything else, and for what cannot be read.
        count: Workloads and graphs.
        alone: How many of them have one rank.
        notes: What the reader did not understand.
    """

    target: Path
    findings: "tuple[Finding, ...]"
    num_ranks: int | None = None
    count: int = 1
    alone: int = 0
    notes: "tuple[Note, ...]" = ()


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH",
        help="prefix of PREFIX.<rank>.et, trace file of any format, flow graph (.graphml or "
        "layerdag's .json), or folder of these; samples in parts (format=tar or parquet), or one "
        "part")  # fmt: skip
    add_groups(parser)
    add("--strict", action="store_true", help="let warnings and notes fail too")
    add("--rules", action="store_true", help="list the rules and stop")
    add("--fix", action="store_true",
        help="change what has one safe answer (see --rules) and write the traces anew to "
        "--out")  # fmt: skip
    add("--out", metavar="PREFIX", help="with --fix: write PREFIX.<rank>.et")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 if there is an error (or, with ``--strict``, a warning)."""
    from layerdag.samples.manifest import caution_about
    from layerdag.validation.rules import has_errors

    if args.rules:
        return _print_rules(args.json)
    if not args.paths:
        raise UsageError("Nothing to validate; give a path, or --rules to list what is checked.")
    if args.fix:
        return _fix(args)
    if args.out:
        raise UsageError("--out needs --fix; add it or leave it out.")
    checked = [one for path in args.paths for one in _checked(Path(path), args.comm_group)]
    findings = [finding for one in checked for finding in one.findings]
    notes = [note for one in checked for note in one.notes]
    cautions = [*dict.fromkeys(filter(None, (caution_about(Path(path)) for path in args.paths)))]
    figures = {
        "checked": [str(one.target) for one in checked],
        "one_rank": [str(one.target) for one in checked if one.alone == one.count],
        "valid": not has_errors(findings),
        "findings": [finding_json(finding) for finding in findings],
        "notes": notes_json(notes),
        **({"cautions": cautions} if cautions else {}),
    }
    lines = [*(f"note: {caution}" for caution in cautions), *_lines(checked, findings)]
    print_figures(args.json, figures, lines)
    if not args.json:
        print_notes(notes)
    return int(has_errors(findings) or (args.strict and bool(findings or notes)))


def _lines(checked: Sequence[Checked], findings: "Sequence[Finding]") -> Iterator[str]:
    from layerdag.validation.fixes import FIXABLE
    from layerdag.validation.rules import Severity

    yield from map(finding_line, findings)
    alone, count = sum(one.alone for one in checked), sum(one.count for one in checked)
    if alone:
        yield (
            f"note: {alone} of {count} have one rank; 'layerdag simulate' runs these, "
            "ASTRA-sim itself needs two or more"
        )
    fixable = sum(finding.rule.id in FIXABLE for finding in findings)
    if fixable and all(one.num_ranks is not None for one in checked):
        yield f"note: --fix --out PREFIX can fix {fixable} of these"
    errors = sum(finding.rule.severity is Severity.ERROR for finding in findings)
    noun = "workload or graph" if count == 1 else "workloads and graphs"
    verdict = "no finding"
    if findings:
        verdict = f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"
    yield f"{count} {noun} checked: {verdict}"


def _checked(path: Path, groups: str | None) -> Iterator[Checked]:
    """Yield what was checked at a path; of samples in parts one for each part."""
    parts = parts_at(path)
    if parts is None:
        yield from (_check(target, groups) for target in _targets(path))
    else:
        yield from map(check_part, parts)


def _targets(path: Path) -> Iterator[Path]:
    from layerdag.codec.formats import flow_format
    from layerdag.runtime.files import entries_in
    from layerdag.traces.chakra.workload import RankFile

    if not path.is_dir():
        yield path
        return
    entries = entries_in(path)
    prefixes = set()
    for file in (child for child in entries if child.match("*.et*") and child.is_file()):
        found = RankFile.from_name(file.name)
        ranked = found and found.prefix and file.name.startswith(f"{found.prefix}.")
        prefixes.add(found.prefix if found and ranked else file.name)
    graphs = [child for child in entries if child.is_file() and flow_format(child)]
    inner = [child for child in entries if child.is_dir()]
    yield from (path / prefix for prefix in sorted(prefixes))
    yield from graphs
    for folder in inner:
        yield from _targets(folder)
    if not (graphs or inner or prefixes):
        raise TraceError(f"{path}: holds no trace and no graph; give a folder of .et files.")


def _check(target: Path, groups: str | None) -> Checked:
    """Check one workload or graph; what cannot be read is a finding like any other."""
    from layerdag.codec.formats import Content, ReadOptions, recognize
    from layerdag.samples.writer import why_not_samples
    from layerdag.traces.chakra.workload import holds_rank_files
    from layerdag.validation.checking import check_group_file, check_workload

    def is_sampled() -> bool:
        return not all(map(why_not_samples, (target.parent, target.parent.parent)))

    try:
        place = recognize(target)
        if place.content is Content.GRAPH:
            graph = place.graph()
            findings = _check_graph(target, graph, is_sampled=is_sampled())
            return Checked(target, tuple(findings), notes=graph.notes)
        workload = place.traces(ReadOptions(groups))
        described = check_group_file(workload) if groups or holds_rank_files(target) else []
        findings = described + check_workload(workload)
    except DataError as error:
        return Checked(target, (_unreadable(target, error),))
    if findings and is_sampled():
        findings = [replace(finding, sampled=True) for finding in findings]
    ranks = workload.num_ranks
    return Checked(target, tuple(findings), ranks, alone=int(ranks == 1), notes=workload.notes)


def _unreadable(path: Path, error: DataError) -> "Finding":
    from layerdag.validation.rules import TRACE_RULES, Finding

    found = " ".join(str(error).split()).removeprefix(f"{path}: ").rstrip(".")
    return Finding(TRACE_RULES["readable"], str(path), None, found)


def _check_graph(
    target: Path, graph: "AttributedGraph", *, is_sampled: bool
) -> "Sequence[Finding]":
    from layerdag.codec.formats import FORWARD_PROGRAM, format_of_file
    from layerdag.evaluation.graph_findings import graph_findings
    from layerdag.programs.forward_program import Program

    if format_of_file(target) is FORWARD_PROGRAM:  # whose graph lacks what it returns
        return [replace(found, where=str(target)) for found in Program.load(target).check()]
    return graph_findings(replace(graph, name=str(target)), in_layer_order=is_sampled)


def parts_at(path: Path) -> Sequence[Path] | None:
    """Return the parts at a path, those that are missing included; None if it is something else.

    Raises:
        DataError: If the file of the run is damaged.
    """
    from layerdag.samples.manifest import SampleRun, is_run

    if path.is_file():
        is_part = path.name.endswith((".tar", ".tar.gz", ".tar.xz", ".parquet"))
        return [path] if is_part else None
    if not is_run(path):
        return None
    run = SampleRun.read(path)
    return [path / run.file_of(part) for part in range(run.num_parts)]


def check_part(path: Path) -> Checked:
    """Check all samples of a part; what cannot be read is a finding like any other."""
    from layerdag.samples.reader import iter_samples

    findings: list[Finding] = []
    count = alone = 0
    try:
        for sample in iter_samples(path):
            count += 1
            found, ranks = _check_sample(sample)
            alone += ranks == 1
            findings += [replace(finding, sampled=True) for finding in found]
    except DataError as error:
        findings.append(_unreadable(path, error))
    return Checked(path, tuple(findings), count=max(count, 1), alone=alone)


def _check_sample(sample: "StoredSample") -> "tuple[Sequence[Finding], int | None]":
    from layerdag.validation.checking import check_group_file, check_workload

    if sample.is_job:
        workload = sample.workload()
        described = check_group_file(workload) if sample.files else []
        return [*described, *check_workload(workload)], workload.num_ranks
    from layerdag.evaluation.graph_findings import graph_findings  # loads torch

    return graph_findings(replace(sample.graph, name=sample.source), in_layer_order=True), None


def _fix(args: argparse.Namespace) -> int:
    """Print what was changed and what is left; 1 if an error is left (strictly: a warning)."""
    from layerdag.codec.formats import read_any
    from layerdag.traces.chakra.workload import require_free_prefix, write_workload
    from layerdag.validation.fixes import fix_workload

    if len(args.paths) != 1:
        raise UsageError("--fix takes one workload; give each its own call.")
    if args.out is None:
        raise UsageError(
            "--fix writes the traces anew and leaves yours alone; say where with --out PREFIX."
        )
    require_free_prefix(args.out, overwrite=False)
    fixed = fix_workload(read_any(args.paths[0], args.comm_group))
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    refused = ""
    try:
        write_workload(fixed.workload, args.out)
    except TraceError as error:
        refused = str(error)
    figures = {
        "written": None if refused else args.out,
        "refused": refused,
        "valid": not refused and fixed.is_valid,
        "fixes": [
            {"rule": f.rule.id, "where": f.where, "node": f.node, "done": f.done, "count": f.count}
            for f in fixed.fixes
        ],
        "findings": [finding_json(finding) for finding in fixed.findings],
    }
    print_figures(args.json, figures, _fix_lines(fixed, args.out, refused))
    return int(bool(refused) or not fixed.is_valid or (args.strict and bool(fixed.findings)))


def _fix_lines(fixed: "FixedWorkload", out: str, refused: str) -> Iterator[str]:
    yield from (f"fixed: [{fix.rule.id}] {fix.sentence()}" for fix in fixed.fixes)
    yield from map(finding_line, fixed.findings)
    ranks = counted(fixed.workload.num_ranks, "rank")
    left = f"; {len(fixed.findings)} left, see above" if fixed.findings else ""
    if refused:
        yield f"nothing was written: {refused}"
    elif fixed.fixes:
        rules = counted(len(fixed.fixes), "rule")
        yield f"{rules} fixed{left}. {ranks} written: layerdag simulate {shlex.quote(out)}"
    else:
        yield f"nothing to fix{left}. {ranks} written as they were read: {out}"


def _print_rules(as_json: bool) -> int:
    from layerdag.evaluation.validity import GRAPH_RULES
    from layerdag.programs.validity import PROGRAM_RULES
    from layerdag.validation.fixes import FIXABLE
    from layerdag.validation.rules import TRACE_RULES
    from layerdag.validation.whole_program import WHOLE_PROGRAM_RULES

    listed: dict[str, list[dict[str, object]]] = {}
    lines = []
    for name, table in (
        ("traces", TRACE_RULES),
        ("steps", WHOLE_PROGRAM_RULES),
        ("graphs", GRAPH_RULES),
        ("programs", PROGRAM_RULES),
    ):
        listed[name] = []
        lines.append(f"Rules on {name}:")
        for rule in table.values():
            fixable = name == "traces" and rule.id in FIXABLE
            listed[name].append(
                {
                    "id": rule.id,
                    "severity": rule.severity.value,
                    "what": rule.what,
                    "remedy": rule.remedy,
                    "remedy_if_sampled": rule.if_sampled or rule.remedy,
                    "fixable": fixable,
                }
            )
            severity = f"{rule.severity.value}{', --fix' if fixable else ''}"
            lines.append(f"  {rule.id} ({severity}): {rule.what}\n      {rule.remedy}")
    print_figures(as_json, listed, lines)
    return 0
