"""``layerdag validate``: check traces and graphs against the rules that consumers rely on."""

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import notes_json, print_notes, warn
from layerdag.errors import DataError, TraceError, UsageError

if TYPE_CHECKING:
    from layerdag.graph.attributed_graph import AttributedGraph
    from layerdag.runtime.notes import Note
    from layerdag.samples.stored import StoredSample
    from layerdag.validation.fixes import FixedWorkload
    from layerdag.validation.rules import Finding


def fix(path: str, out: str | None, groups: str | None, *, as_json: bool, strict: bool) -> int:
    """Print what was changed and what is left; 1 if an error is left (strictly: a warning).

    Raises:
        UsageError: If there is no prefix to write to, or a workload lies there.
        DataError: If the traces cannot be read.
    """
    from layerdag.codec.formats import read_any
    from layerdag.traces.chakra.workload import require_free_prefix
    from layerdag.validation.fixes import fix_workload

    if out is None:
        raise UsageError(
            "--fix writes the traces anew and leaves yours alone; say where with --out PREFIX."
        )
    require_free_prefix(out, overwrite=False)
    fixed = fix_workload(read_any(path, groups))
    refused = _written(fixed, out)
    if as_json:
        print(json.dumps(_as_json(fixed, out, refused), indent=1))
    else:
        _print_text(fixed, out, refused)
    return int(bool(refused) or not fixed.is_valid or (strict and bool(fixed.findings)))


def _written(fixed: "FixedWorkload", out: str) -> str:
    """Write the workload if it can be; return why not, "" if it was."""
    from layerdag.traces.chakra.workload import write_workload

    Path(out).parent.mkdir(parents=True, exist_ok=True)
    try:
        write_workload(fixed.workload, out)
    except TraceError as error:
        return str(error)
    return ""


def _print_text(fixed: "FixedWorkload", out: str, refused: str) -> None:
    """Print one line for each fix and finding, and where the workload lies."""
    for fix in fixed.fixes:
        print(f"fixed: [{fix.rule.id}] {fix.sentence()}")
    for finding in fixed.findings:
        print(f"{finding.rule.severity.value}: [{finding.rule.id}] {finding.sentence()}")
    if refused:
        print(f"nothing was written: {refused}")
        return
    count = fixed.workload.num_ranks
    ranks = "1 rank" if count == 1 else f"{count} ranks"
    left = f"; {len(fixed.findings)} left, see above" if fixed.findings else ""
    rules = "1 rule" if len(fixed.fixes) == 1 else f"{len(fixed.fixes)} rules"
    print(
        f"{rules} fixed{left}. {ranks} written: layerdag simulate {shlex.quote(out)}"
        if fixed.fixes
        else f"nothing to fix{left}. {ranks} written as they were read: {out}"
    )


def _as_json(fixed: "FixedWorkload", out: str, refused: str) -> dict[str, object]:
    return {
        "written": None if refused else out,
        "refused": refused,
        "valid": not refused and fixed.is_valid,
        "fixes": [
            {
                "rule": fix.rule.id,
                "where": fix.where,
                "node": fix.node,
                "done": fix.done,
                "count": fix.count,
            }
            for fix in fixed.fixes
        ],
        "findings": [finding_row(finding) for finding in fixed.findings],
    }


def finding_row(finding: "Finding") -> dict[str, object]:
    """Return a finding for scripts."""
    return {
        "rule": finding.rule.id,
        "severity": finding.rule.severity.value,
        "where": finding.where,
        "node": finding.node,
        "found": finding.found,
        "count": finding.count,
        "remedy": finding.remedy,
    }


SUMMARY = "Check traces and graphs against the rules that consumers rely on."
EXAMPLE = (
    "  layerdag workload gpt2 --data 2 --out traces/gpt2\n"
    "  layerdag validate traces/gpt2           # traces/gpt2.<rank>.et, all ranks together\n"
    "  layerdag validate samples --json        # every workload below a folder\n"
    "  layerdag validate --rules               # what is checked, and why\n"
    "  layerdag validate traces/gpt2 --fix --out fixed/gpt2    # repair what has one safe answer\n"
    "  layerdag validate samples --data corpus       # copies and membership attacks"
)


@dataclass(frozen=True)
class Checked:
    """One workload or graph that was checked.

    Attributes:
        target: Its path.
        num_ranks: Ranks of a workload; None for a graph, and for what cannot be read.
        findings: What is wrong with it.
        count: Workloads and graphs; a part of samples holds many.
        alone: How many of them have one rank.
        notes: What its reader did not understand.
    """

    target: Path
    num_ranks: int | None
    findings: "tuple[Finding, ...]"
    count: int = 1
    alone: int = 0
    notes: "tuple[Note, ...]" = ()


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="prefix of PREFIX.<rank>.et, trace file of any format, flow graph (.graphml or "
        "layerdag's .json), or folder of these; samples in parts (format=tar or parquet), or one "
        "part",
    )
    parser.add_argument(
        "--comm-group", metavar="FILE", help='communicator groups: JSON {"<group>": [rank, ...]}'
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="let warnings and notes fail too; with --data, whatever is not no better than chance",
    )
    parser.add_argument("--rules", action="store_true", help="list the rules and stop")
    parser.add_argument(
        "--data",
        "--against",
        dest="against",
        metavar="DATA",
        help="do the samples in PATH give away the training graphs of this data set (corpus, "
        "its folder, or the run that learned from it)? Copies, nearness and membership attacks",
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="with --data: attack these weights, too"
    )
    parser.add_argument(
        "--labels",
        metavar="FILE",
        help="with --data: label file of DATA, where it is not labels.csv or labels.json in it",
    )
    parser.add_argument("--report", metavar="FILE", help="with --data: write an HTML page")
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="with --data: compute all figures again, even if no file has changed",
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="change what has one safe answer (see --rules) and write the traces anew to --out",
    )
    parser.add_argument("--out", metavar="PREFIX", help="with --fix: write PREFIX.<rank>.et")


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
    if args.against:
        return _audit(args)
    if args.checkpoint or args.report or args.labels:
        raise UsageError(
            "--checkpoint, --labels and --report need --data DATA; add it or leave them out."
        )
    checked = [one for path in args.paths for one in _checked(Path(path), args.comm_group)]
    findings = [finding for one in checked for finding in one.findings]
    notes = [note for one in checked for note in one.notes]
    cautions = dict.fromkeys(filter(None, (caution_about(Path(path)) for path in args.paths)))
    if args.json:
        row = _as_json_validate(checked, findings)
        print(json.dumps({**row, **({"cautions": [*cautions]} if cautions else {})}, indent=1))
    else:
        for caution in cautions:
            print(f"note: {caution}")
        _print_text_validate(checked, findings)
        print_notes(notes)
    return int(has_errors(findings) or (args.strict and bool(findings or notes)))


def _fix(args: argparse.Namespace) -> int:
    if args.against or args.checkpoint or args.report or args.labels:
        raise UsageError("--fix changes traces and --data judges samples; give each its call.")
    if len(args.paths) != 1:
        raise UsageError("--fix takes one workload; give each its own call.")
    return fix(args.paths[0], args.out, args.comm_group, as_json=args.json, strict=args.strict)


def _audit(args: argparse.Namespace) -> int:
    """Print what samples give away; with ``--strict`` 1 unless all is no better than chance."""
    from layerdag.api.reference_data import ReferenceData
    from layerdag.cli.commands.audit import audit, cached_audit
    from layerdag.report.page import require_replaceable_report

    if len(args.paths) != 1:
        raise UsageError("--data takes one folder of samples; give each its own call.")
    if args.report:
        require_replaceable_report(args.report)
    against = ReferenceData(args.against, args.labels, warn)
    real = None if args.no_cache else against.files(args.paths[0])
    checkpoint = [args.checkpoint] if args.checkpoint else []
    found = cached_audit(
        {
            "verb": "validate",
            "against": args.against,
            "samples": args.paths[0],
            "labels": args.labels,
        },
        None if real is None else [args.paths[0], *real, *checkpoint],
        lambda: audit(args.paths[0], against, args.checkpoint),
    )
    found.show(args.report, as_json=args.json)
    return int(args.strict and not found.passes)


def _checked(path: Path, groups: str | None) -> Iterator[Checked]:
    """Yield what was checked at a path; of samples in parts one for each part."""
    parts = parts_at(path)
    if parts is None:
        yield from (_check(target, groups) for target in _targets(path))
        return
    for part in parts:
        found = check_part(part)
        yield Checked(part, None, found.findings, found.count, found.alone)


def _targets(path: Path) -> Iterator[Path]:
    from layerdag.codec.formats import flow_format
    from layerdag.runtime.files import entries_in

    if not path.is_dir():
        yield path
        return
    entries = entries_in(path)
    graphs = [child for child in entries if child.is_file() and flow_format(child)]
    inner = [child for child in entries if child.is_dir()]
    prefixes = sorted({_prefix(child) for child in entries if _is_trace(child)})
    yield from (path / prefix for prefix in prefixes)
    yield from graphs
    for folder in inner:
        yield from _targets(folder)
    if not (graphs or inner or prefixes):
        raise TraceError(f"{path}: holds no trace and no graph; give a folder of .et files.")


def _is_trace(path: Path) -> bool:
    return path.match("*.et*") and path.is_file()


def _prefix(file: Path) -> str:
    """Return ``run`` for ``run.0.et``, and the whole name for a file without a rank."""
    from layerdag.traces.chakra.workload import RankFile

    found = RankFile.from_name(file.name)
    if found and found.prefix and file.name.startswith(f"{found.prefix}."):
        return found.prefix
    return file.name


def _check(target: Path, groups: str | None) -> Checked:
    """Check one workload or graph; what cannot be read is a finding like any other."""
    from layerdag.codec.formats import Content, ReadOptions, recognize
    from layerdag.traces.chakra.workload import holds_rank_files
    from layerdag.validation.checking import check_group_file, check_workload
    from layerdag.validation.rules import TRACE_RULES, Finding

    try:
        place = recognize(target)
        if place.content is Content.GRAPH:
            graph = place.graph()
            found_in = tuple(_check_graph(target, graph))
            return Checked(target, None, found_in, notes=graph.notes)
        workload = place.traces(ReadOptions(groups))
        described = check_group_file(workload) if groups or holds_rank_files(target) else []
        findings = described + check_workload(workload)
    except DataError as error:
        found = " ".join(str(error).split()).removeprefix(f"{target}: ").rstrip(".")
        return Checked(target, None, (Finding(TRACE_RULES["readable"], str(target), None, found),))
    if findings and _is_sampled(target):
        findings = [replace(finding, sampled=True) for finding in findings]
    alone = int(workload.num_ranks == 1)
    return Checked(target, workload.num_ranks, tuple(findings), alone=alone, notes=workload.notes)


def _is_sampled(target: Path) -> bool:
    from layerdag.samples.writer import why_not_samples

    return not why_not_samples(target.parent) or not why_not_samples(target.parent.parent)


def _check_graph(target: Path, graph: "AttributedGraph") -> "list[Finding]":
    from layerdag.codec.formats import FORWARD_PROGRAM, format_of_file
    from layerdag.evaluation.graph_findings import graph_findings
    from layerdag.programs.forward_program import Program

    if format_of_file(target) is FORWARD_PROGRAM:  # whose graph lacks what it returns
        return [replace(found, where=str(target)) for found in Program.load(target).check()]
    named = replace(graph, name=str(target))
    return graph_findings(named, in_layer_order=_is_sampled(target))


def _print_text_validate(checked: Sequence[Checked], findings: "Sequence[Finding]") -> None:
    from layerdag.validation.fixes import FIXABLE
    from layerdag.validation.rules import Severity

    for finding in findings:
        print(f"{finding.rule.severity.value}: [{finding.rule.id}] {finding.sentence()}")
    alone, count = sum(one.alone for one in checked), sum(one.count for one in checked)
    if alone:
        print(
            f"note: {alone} of {count} have one rank; 'layerdag simulate' runs these, "
            "ASTRA-sim itself needs two or more"
        )
    fixable = sum(finding.rule.id in FIXABLE for finding in findings)
    if fixable and all(one.num_ranks is not None for one in checked):
        print(f"note: --fix --out PREFIX can fix {fixable} of these")
    errors = sum(finding.rule.severity is Severity.ERROR for finding in findings)
    warnings = len(findings) - errors
    noun = "workload or graph" if count == 1 else "workloads and graphs"
    verdict = "no finding"
    if findings:
        verdict = f"{_counted(errors, 'error')}, {_counted(warnings, 'warning')}"
    print(f"{count} {noun} checked: {verdict}")


def _counted(count: int, noun: str) -> str:
    """Return "1 error" or "2 errors"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _as_json_validate(
    checked: Sequence[Checked], findings: "Sequence[Finding]"
) -> dict[str, object]:
    from layerdag.validation.rules import has_errors

    return {
        "checked": [str(one.target) for one in checked],
        "one_rank": [str(one.target) for one in checked if one.alone == one.count],
        "valid": not has_errors(findings),
        "findings": [finding_row(finding) for finding in findings],
        "notes": notes_json([note for one in checked for note in one.notes]),
    }


def _print_rules(as_json: bool) -> int:
    from layerdag.evaluation.validity import GRAPH_RULES
    from layerdag.programs.validity import PROGRAM_RULES
    from layerdag.validation.fixes import FIXABLE
    from layerdag.validation.rules import TRACE_RULES
    from layerdag.validation.whole_program import WHOLE_PROGRAM_RULES

    tables = {
        "traces": TRACE_RULES,
        "steps": WHOLE_PROGRAM_RULES,
        "graphs": GRAPH_RULES,
        "programs": PROGRAM_RULES,
    }
    if as_json:
        listed = {
            name: [
                {
                    "id": r.id,
                    "severity": r.severity.value,
                    "what": r.what,
                    "remedy": r.remedy,
                    "remedy_if_sampled": r.if_sampled or r.remedy,
                    "fixable": name == "traces" and r.id in FIXABLE,
                }
                for r in table.values()
            ]
            for name, table in tables.items()
        }
        print(json.dumps(listed, indent=1))
        return 0
    for name, table in tables.items():
        print(f"Rules on {name}:")
        for rule in table.values():
            fixed = ", --fix" if name == "traces" and rule.id in FIXABLE else ""
            severity = f"{rule.severity.value}{fixed}"
            print(f"  {rule.id} ({severity}): {rule.what}\n      {rule.remedy}")
    return 0


_ENDINGS = (".tar", ".tar.gz", ".tar.xz", ".parquet")


@dataclass(frozen=True)
class CheckedPart:
    """A part whose samples were checked.

    Attributes:
        findings: What is wrong with them.
        count: How many there are.
        alone: How many are jobs of one rank.
    """

    findings: "tuple[Finding, ...]"
    count: int
    alone: int


MOST_MISSING = 10_000
"""Parts of samples that are named one by one where they are missing."""


def parts_at(path: Path) -> Sequence[Path] | None:
    """Return the parts at a path, those that are missing included; None if it is something else.

    Raises:
        DataError: If the file of the run is damaged.
    """
    from layerdag.samples.manifest import SampleRun, is_run

    if path.is_file():
        return [path] if path.name.endswith(_ENDINGS) else None
    if not is_run(path):
        return None
    run = SampleRun.read(path)
    there = run.count_parts(path)
    if run.num_parts - there > MOST_MISSING:
        raise DataError(
            f"{path}: is to hold {run.num_parts:,} parts, of which {there:,} are there; repeat "
            "'layerdag sample', which writes the others, or get the folder from its source again."
        )
    return [path / run.file_of(part) for part in range(run.num_parts)]


def check_part(path: Path) -> CheckedPart:
    """Check all samples of a part; what cannot be read is a finding like any other."""
    from layerdag.samples.reader import iter_samples
    from layerdag.validation.rules import TRACE_RULES, Finding

    findings: list[Finding] = []
    count = alone = 0
    try:
        for sample in iter_samples(path):
            count += 1
            found, ranks = _check_parts(sample)
            alone += ranks == 1
            findings += [replace(finding, sampled=True) for finding in found]
    except DataError as error:
        said = " ".join(str(error).split()).removeprefix(f"{path}: ").rstrip(".")
        findings.append(Finding(TRACE_RULES["readable"], str(path), None, said))
    return CheckedPart(tuple(findings), max(count, 1), alone)


def _check_parts(sample: "StoredSample") -> "tuple[Sequence[Finding], int | None]":
    from layerdag.validation.checking import check_group_file, check_workload

    if sample.is_job:
        workload = sample.workload()
        described = check_group_file(workload) if sample.files else []
        return [*described, *check_workload(workload)], workload.num_ranks
    from layerdag.evaluation.graph_findings import graph_findings  # loads torch

    return graph_findings(replace(sample.graph, name=sample.source), in_layer_order=True), None
