"""``layerdag validate --fix``: change what has one safe answer, and write the workload anew."""

import json
import shlex
from pathlib import Path

from layerdag.errors import TraceError, UsageError
from layerdag.evaluation.fixes import FixedWorkload, fix_workload
from layerdag.evaluation.rules import Finding
from layerdag.traces import read_any, require_free_prefix, write_workload


def fix(path: str, out: str | None, groups: str | None, *, as_json: bool, strict: bool) -> int:
    """Print what was changed and what is left; 1 if an error is left (strictly: a warning).

    Raises:
        UsageError: If there is no prefix to write to, or a workload lies there.
        DataError: If the traces cannot be read.
    """
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


def _written(fixed: FixedWorkload, out: str) -> str:
    """Write the workload if it can be; return why not, "" if it was."""
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    try:
        write_workload(fixed.workload, out)
    except TraceError as error:
        return str(error)
    return ""


def _print_text(fixed: FixedWorkload, out: str, refused: str) -> None:
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


def _as_json(fixed: FixedWorkload, out: str, refused: str) -> dict[str, object]:
    """Return fixes and findings for scripts."""
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


def finding_row(finding: Finding) -> dict[str, object]:
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
