"""Rules that consumers of traces rely on, with evidence, and repairs."""

from layerdag.validation.checking import check_group_file, check_workload
from layerdag.validation.fixes import FIXABLE, FixedWorkload, fix_workload
from layerdag.validation.rules import TRACE_RULES, Finding, Rule, Severity, has_errors, rule_table

__all__ = [
    "FIXABLE",
    "TRACE_RULES",
    "Finding",
    "FixedWorkload",
    "Rule",
    "Severity",
    "check_group_file",
    "check_workload",
    "fix_workload",
    "has_errors",
    "rule_table",
]
