"""``layerdag validate``: check traces and graphs against the rules that consumers rely on."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from layerdag.cli.printing import (
    add_groups,
    finding_line,
    notes_json,
    print_figures,
    print_notes,
)
from layerdag.errors import TraceError, UsageError
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.api.checking import Checked
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
    from layerdag.api.checking import check_path
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
    checked = [one for path in args.paths for one in check_path(Path(path), args.comm_group)]
    findings = [finding for one in checked for finding in one.findings]
    notes = [note for one in checked for note in one.notes]
    cautions = [*dict.fromkeys(filter(None, (caution_about(Path(path)) for path in args.paths)))]
    figures = {
        "checked": [str(one.target) for one in checked],
        "one_rank": [str(one.target) for one in checked if one.alone == one.count],
        "valid": not has_errors(findings),
        "findings": [finding.to_json() for finding in findings],
        "notes": notes_json(notes),
        **({"cautions": cautions} if cautions else {}),
    }
    lines = [*(f"note: {caution}" for caution in cautions), *_lines(checked, findings)]
    print_figures(args.json, figures, lines)
    if not args.json:
        print_notes(notes)
    return int(has_errors(findings) or (args.strict and bool(findings or notes)))


def _lines(checked: "Sequence[Checked]", findings: "Sequence[Finding]") -> Iterator[str]:
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
        "fixes": [fix.to_json() for fix in fixed.fixes],
        "findings": [finding.to_json() for finding in fixed.findings],
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

    listed, lines = {}, []
    for name, table in (
        ("traces", TRACE_RULES),
        ("steps", WHOLE_PROGRAM_RULES),
        ("graphs", GRAPH_RULES),
        ("programs", PROGRAM_RULES),
    ):
        fixable = FIXABLE if name == "traces" else ()
        listed[name] = [rule.to_json() | {"fixable": rule.id in fixable} for rule in table.values()]
        lines.append(f"Rules on {name}:")
        for rule in table.values():
            fix = ", --fix" if rule.id in fixable else ""
            lines.append(f"  {rule.id} ({rule.severity.value}{fix}): {rule.what}")
            lines.append(f"      {rule.remedy}")
    print_figures(as_json, listed, lines)
    return 0
