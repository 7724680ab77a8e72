"""What a fix is, and how the fixes of many ranks are told in a few lines."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from layerdag.evaluation.rules import Finding, Rule, has_errors
from layerdag.traces import Trace, Workload


@dataclass(frozen=True)
class Fix:
    """One rule that a workload broke, and what was changed so that it holds.

    Attributes:
        rule: The rule.
        where: File of the first node, or the group file.
        node: Id of the first node, None where none is concerned.
        done: What was changed, such as "one of each kept".
        count: Number of nodes (or groups) that were changed.
    """

    rule: Rule
    where: str
    node: int | None
    done: str
    count: int

    def sentence(self) -> str:
        """Return the fix as one line."""
        location = self.where if self.node is None else f"{self.where}: node {self.node}"
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"{location}: {self.done}{more}."


@dataclass(frozen=True)
class FixedWorkload:
    """A workload after everything was changed that has one safe answer.

    Attributes:
        workload: With the changes; the given one where nothing was changed.
        fixes: What was changed, one entry per rule, in the order in which it was done.
        findings: What still breaks a rule.
    """

    workload: Workload
    fixes: tuple[Fix, ...]
    findings: tuple[Finding, ...]

    @property
    def is_valid(self) -> bool:
        """Whether no error is left; warnings may be."""
        return not has_errors(self.findings)


@dataclass(frozen=True, eq=False)
class TraceFix:
    """What one fix did to one trace.

    Attributes:
        trace: With the change.
        done_N: bool over the nodes of the trace *before* the change: those concerned.
        done: What was changed.
    """

    trace: Trace
    done_N: np.ndarray
    done: str

    def as_fix(self, rule: Rule, before: Trace) -> Fix:
        """Return it as a fix of ``rule`` in the trace as it was before."""
        first = int(np.argmax(self.done_N))
        node, count = int(before.id_N[first]), int(self.done_N.sum())
        return Fix(rule, before.source, node, self.done, count)


def merged(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """Return one fix per rule and change: the first, with the count of all."""
    kept: dict[tuple[str, str], Fix] = {}
    for fix in fixes:
        key = (fix.rule.id, fix.done)
        known = kept.get(key)
        kept[key] = replace(known, count=known.count + fix.count) if known else fix
    return tuple(kept.values())
