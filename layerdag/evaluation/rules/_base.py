"""What a rule and a finding are; the tables of rules stand with the checks that apply them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How much a broken rule matters."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Rule:
    """One thing that must hold.

    Attributes:
        id: Stable name, as printed and as scripts match it.
        severity: ERROR where a consumer refuses, hangs or miscounts; WARNING where it may.
        what: What is wrong where the rule is broken, in one sentence.
        remedy: What to do about it, in one sentence, for who writes or converts the traces.
        if_sampled: The same for who sampled them, where it differs.
    """

    id: str
    severity: Severity
    what: str
    remedy: str
    if_sampled: str = ""


@dataclass(frozen=True)
class Finding:
    """One place where a rule is broken.

    Attributes:
        rule: The broken rule.
        where: File, rank or graph.
        node: Id of the first node concerned, None where none is.
        found: What was found there.
        count: Number of nodes (or graphs) for which the same holds.
        sampled: Whether `layerdag sample` made what was checked.
    """

    rule: Rule
    where: str
    node: int | None
    found: str
    count: int = 1
    sampled: bool = False

    @property
    def remedy(self) -> str:
        """What the reader of this finding can do about it."""
        return (self.sampled and self.rule.if_sampled) or self.rule.remedy

    def sentence(self) -> str:
        """Return the finding as one line."""
        location = self.where if self.node is None else f"{self.where}: node {self.node}"
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"{location}: {self.found}{more}. {self.remedy}"


def has_errors(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is an error rather than a warning."""
    return any(finding.rule.severity is Severity.ERROR for finding in findings)


def rule_table(*rules: Rule) -> dict[str, Rule]:
    """Return the rules by id; ids are distinct."""
    table = {rule.id: rule for rule in rules}
    assert len(table) == len(rules), "rule ids must be distinct"
    return table
