"""Why a program is no training step that runs: rules, and the nodes that break them."""

from collections.abc import Iterator

from torch import Tensor

from layerdag.programs.execution import NodeError, run_fake
from layerdag.programs.nodes import ForwardGraph
from layerdag.programs.operators import LEAVES, in_place
from layerdag.validation.rules import Finding, Rule, Severity, rule_table

PROGRAM_RULES = rule_table(
    Rule(
        "program-runs",
        Severity.ERROR,
        "A call refuses the tensors that it is given, so that the program has no step.",
        "Give other numbers in the table of sizes, or mend the node.",
        "Draw another one.",
    ),
    Rule(
        "program-loss",
        Severity.WARNING,
        "The output is no scalar that depends on a parameter: there is nothing to differentiate.",
        "Record the loss, too; for inference leave it as it is.",
    ),
    Rule(
        "program-parameters",
        Severity.WARNING,
        "A parameter has no part in the output, so that it gets no gradient.",
        "Leave it out, unless the model has it so.",
    ),
    Rule(
        "program-results",
        Severity.WARNING,
        "A result is used by nothing.",
        "Leave the call out, unless the model makes it so.",
    ),
)
"""The rules of forward programs by id."""


def check(program: ForwardGraph, training: bool = True) -> list[Finding]:
    """Return why this is no step that runs; nothing if it is one.

    Args:
        program: The program.
        training: Whether it must end in a loss that every parameter has a part in.
    """
    try:
        results = run_fake(program)
    except NodeError as error:
        operator = program.nodes[error.at].operator
        found = f"{operator} cannot run: {error.reason.rstrip('.')}"
        return [Finding(PROGRAM_RULES["program-runs"], program.name, error.at, found)]
    unused = [*_unused_results(program)]
    if not training:
        return unused
    loss = results[program.outputs[0]] if len(program.outputs) == 1 else None
    if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
        at = program.outputs[0] if program.outputs else None
        found = "the output is no scalar that depends on a parameter"
        return [*unused, Finding(PROGRAM_RULES["program-loss"], program.name, at, found)]
    return [*unused, *_unreached(program)]


def runs(findings: list[Finding]) -> bool:
    """Return whether a program of these findings runs."""
    return not any(finding.rule.id == "program-runs" for finding in findings)


def _unused_results(program: ForwardGraph) -> Iterator[Finding]:
    """Yield the calls of which no other reads the result."""
    read = {i for node in program.nodes for i in node.inputs} | set(program.outputs)
    for at, node in enumerate(program.nodes):
        if at not in read and node.operator not in LEAVES and not in_place(node.operator):
            found = f"the result of {node.operator} is used by nothing"
            yield Finding(PROGRAM_RULES["program-results"], program.name, at, found)


def _unreached(program: ForwardGraph) -> Iterator[Finding]:
    """Yield the nodes with parameters from which no path leads to the output."""
    reached = set(program.outputs)
    for at in range(len(program.nodes) - 1, -1, -1):
        if at in reached:
            reached.update(program.nodes[at].inputs)
    for at, node in enumerate(program.nodes):
        owns = any(leaf.kind == "parameter" and leaf.trained for leaf in node.leaves)
        if owns and at not in reached:
            found = f"the parameters of {node.operator} get no gradient"
            yield Finding(PROGRAM_RULES["program-parameters"], program.name, at, found)
