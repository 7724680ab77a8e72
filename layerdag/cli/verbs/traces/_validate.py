"""``layerdag validate``: is a trace, workload or graph what its consumers demand?"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag.cli.verbs.traces.validating import finding_row, fix
from layerdag.errors import DataError, TraceError, UsageError
from layerdag.evaluation.fixes import FIXABLE
from layerdag.evaluation.rules import (
    TRACE_RULES,
    Finding,
    Severity,
    check_group_file,
    check_workload,
    has_errors,
)
from layerdag.sampling import doubt_samples
from layerdag.traces import RankFile, holds_rank_files, read_any

SUMMARY = "Check traces and graphs against the rules that consumers rely on."
EXAMPLE = (
    "  layerdag validate traces/run            # traces/run.<rank>.et, all ranks together\n"
    "  layerdag validate samples --json        # every workload below a folder\n"
    "  layerdag validate --rules               # what is checked, and why\n"
    "  layerdag validate traces/run --fix --out fixed/run    # repair what has one safe answer\n"
    "  layerdag validate samples --against data    # copies and membership attacks"
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
    """

    target: Path
    num_ranks: int | None
    findings: tuple[Finding, ...]
    count: int = 1
    alone: int = 0


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
        help="let warnings fail too; with --against, whatever is not no better than chance",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--rules", action="store_true", help="list the rules and stop")
    parser.add_argument(
        "--against",
        metavar="DATA",
        help="do the samples in PATH give away the training graphs of this data set (its folder, "
        "or the run that learned from it)? Copies, nearness and membership attacks",
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="with --against: attack these weights, too"
    )
    parser.add_argument(
        "--labels",
        metavar="FILE",
        help="with --against: label file of DATA, where it is not labels.csv or labels.json in it",
    )
    parser.add_argument("--report", metavar="FILE", help="with --against: write an HTML page")
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="with --against: compute all figures again, even if no file has changed",
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="change what has one safe answer (see --rules) and write the traces anew to --out",
    )
    parser.add_argument("--out", metavar="PREFIX", help="with --fix: write PREFIX.<rank>.et")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 if there is an error (or, with ``--strict``, a warning)."""
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
            "--checkpoint, --labels and --report need --against DATA; add it or leave them out."
        )
    checked = [one for path in args.paths for one in _checked(Path(path), args.comm_group)]
    findings = [finding for one in checked for finding in one.findings]
    if args.json:
        print(json.dumps(_as_json(checked, findings), indent=1))
    else:
        _print_text(checked, findings)
    return int(has_errors(findings) or (args.strict and bool(findings)))


def _fix(args: argparse.Namespace) -> int:
    """Print what was fixed in one workload, and what is left."""
    if args.against or args.checkpoint or args.report or args.labels:
        raise UsageError("--fix changes traces and --against judges samples; give each its call.")
    if len(args.paths) != 1:
        raise UsageError("--fix takes one workload; give each its own call.")
    return fix(args.paths[0], args.out, args.comm_group, as_json=args.json, strict=args.strict)


def _audit(args: argparse.Namespace) -> int:
    """Print what samples give away; with ``--strict`` 1 unless all is no better than chance."""
    from layerdag.cli.output import audit, once
    from layerdag.cli.settings import RealData
    from layerdag.report import require_replaceable_report

    if len(args.paths) != 1:
        raise UsageError("--against takes one folder of samples; give each its own call.")
    if args.report:
        require_replaceable_report(args.report)
    against = RealData(args.against, args.labels)
    real = None if args.no_cache else against.files(args.paths[0])
    checkpoint = [args.checkpoint] if args.checkpoint else []
    found = once(
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
    from layerdag.cli.verbs.traces.validating import check_part, parts_at

    parts = parts_at(path)
    if parts is None:
        yield from (_check(target, groups) for target in _targets(path))
        return
    for part in parts:
        found = check_part(part)
        yield Checked(part, None, found.findings, found.count, found.alone)


def _targets(path: Path) -> Iterator[Path]:
    """Yield the workloads and graphs at a path: a folder of several is walked."""
    if not path.is_dir():
        yield path
        return
    graphs = sorted(child for child in path.iterdir() if _is_graph(child))
    inner = sorted(child for child in path.iterdir() if child.is_dir())
    prefixes = sorted({_prefix(child) for child in path.glob("*.et*") if child.is_file()})
    yield from (path / prefix for prefix in prefixes)
    yield from graphs
    for folder in inner:
        yield from _targets(folder)
    if not (graphs or inner or prefixes):
        raise TraceError(f"{path}: holds no trace and no graph; give a folder of .et files.")


def _prefix(file: Path) -> str:
    """Return ``run`` for ``run.0.et``, and the whole name for a file without a rank."""
    found = RankFile.of(file.name)
    if found and found.prefix and file.name.startswith(f"{found.prefix}."):
        return found.prefix
    return file.name


def _check(target: Path, groups: str | None) -> Checked:
    """Check one workload or graph; what cannot be read is a finding like any other."""
    try:
        if target.is_file() and _is_graph(target):
            return Checked(target, None, tuple(_check_graph(target)))
        workload = read_any(target, groups)
        described = check_group_file(workload) if groups or holds_rank_files(target) else []
        findings = described + check_workload(workload)
    except DataError as error:
        found = " ".join(str(error).split()).removeprefix(f"{target}: ").rstrip(".")
        return Checked(target, None, (Finding(TRACE_RULES["readable"], str(target), None, found),))
    if findings and _is_sampled(target):
        findings = [replace(finding, sampled=True) for finding in findings]
    alone = int(workload.num_ranks == 1)
    return Checked(target, workload.num_ranks, tuple(findings), alone=alone)


def _is_sampled(target: Path) -> bool:
    """Return whether a workload is one of those that a manifest of samples lists."""
    return not doubt_samples(target.parent) or not doubt_samples(target.parent.parent)


def _is_graph(target: Path) -> bool:
    """Return whether a file holds a flow graph rather than a trace."""
    from layerdag.datasets.files import is_flow_file

    return is_flow_file(target)


def _check_graph(target: Path) -> list[Finding]:
    """Check the structure of one flow graph."""
    from layerdag.api import validate
    from layerdag.datasets.files import read_flow

    return list(validate(replace(read_flow(target), name=str(target))))


def _print_text(checked: Sequence[Checked], findings: Sequence[Finding]) -> None:
    """Print one line for each finding, a note on jobs of one rank, and the counts."""
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


def _as_json(checked: Sequence[Checked], findings: Sequence[Finding]) -> dict[str, object]:
    """Return the findings for scripts."""
    return {
        "checked": [str(one.target) for one in checked],
        "one_rank": [str(one.target) for one in checked if one.alone == one.count],
        "valid": not has_errors(findings),
        "findings": [finding_row(finding) for finding in findings],
    }


def _print_rules(as_json: bool) -> int:
    """Print both tables of rules."""
    from layerdag.evaluation.rules import GRAPH_RULES

    tables = {"traces": TRACE_RULES, "graphs": GRAPH_RULES}
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
