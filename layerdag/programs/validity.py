"""Why a program is no training step that runs: rules, and the nodes that break them."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from layerdag.hardware.operators import base_name
from layerdag.programs.execution import NodeError, run, run_fake, tensors_of
from layerdag.programs.module import random_leaves
from layerdag.programs.nodes import ForwardGraph
from layerdag.programs.operators import LEAVES, in_place
from layerdag.programs.sizes import evaluate
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
        "program-index",
        Severity.ERROR,
        "Positions reach beyond the rows of the embedding that they are looked up in.",
        "Give the embedding as many rows in the table of sizes as the sequence is long.",
        "Draw other sizes.",
    ),
    Rule(
        "program-content",
        Severity.ERROR,
        "A call refuses numbers that it gets in a real run, such as classes beyond their count.",
        "Mend the sizes of the calls before it, which do not belong together.",
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

_MAX_REAL_ELEMENTS = 1 << 26  # of all results together; beyond it nothing is run for real


def check(program: ForwardGraph, training: bool = True, content: bool = False) -> list[Finding]:
    """Return why this is no step that runs; nothing if it is one.

    In ``training`` it must end in a loss that every parameter has a part in. With ``content`` it is
    also run for real if nothing else is found, as fake tensors have no content: parameters are
    random, inputs normal, indices zeros.
    """
    try:
        results = run_fake(program)
    except NodeError as error:
        operator = program.nodes[error.at].operator
        found = f"{operator} cannot run: {error.reason.rstrip('.')}"
        return [Finding(PROGRAM_RULES["program-runs"], program.name, error.at, found)]
    if beyond := list(_beyond_rows(program, results)):
        return beyond
    findings = list(_unused_results(program))
    if training:
        loss = results[program.outputs[0]] if len(program.outputs) == 1 else None
        if isinstance(loss, Tensor) and not loss.ndim and loss.requires_grad:
            findings += _unreached(program)
        else:
            at = program.outputs[0] if program.outputs else None
            found = "the output is no scalar that depends on a parameter"
            findings.append(Finding(PROGRAM_RULES["program-loss"], program.name, at, found))
    elements = sum(part.numel() for result in results for part in tensors_of(result))
    if content and not findings and elements <= _MAX_REAL_ELEMENTS:
        findings += _failures(program)
    return findings


def _failures(program: ForwardGraph) -> Iterator[Finding]:
    rule = PROGRAM_RULES["program-content"]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            *_, loss = run(program, random_leaves())
    except NodeError as error:
        yield Finding(rule, program.name, error.at, f"a real run stops: {error.reason}")
        return
    if isinstance(loss, Tensor) and not torch.isfinite(loss).all():
        yield Finding(rule, program.name, program.outputs[0], "its loss is not finite")


def runs(findings: list[Finding]) -> bool:
    """Return whether a program of these findings runs."""
    return not any(finding.rule.id in ("program-runs", "program-index") for finding in findings)


_VIEWS = frozenset(
    ("clone", "contiguous", "expand", "expand_as", "flatten", "reshape", "squeeze", "to",
     "unsqueeze", "view")
)  # fmt: skip


def _beyond_rows(program: ForwardGraph, results: Sequence[Any]) -> Iterator[Finding]:
    """Yield the embeddings that are asked for rows that they do not have.

    Fake tensors have no content. That of positions is known nevertheless: it counts from 0 on.
    """
    largest: dict[int, int] = {}
    for at, node in enumerate(program.nodes):
        word = base_name(node.operator).removesuffix("_")
        if node.operator == "aten.arange.default":
            largest[at] = results[at].numel() - 1
        elif word in _VIEWS and len(node.inputs) == 1 and node.inputs[0] in largest:
            largest[at] = largest[node.inputs[0]]
        elif word == "embedding" and node.inputs and node.inputs[-1] in largest:
            weight = node.leaves[0].shape[0] if node.leaves else results[node.inputs[0]].shape[0]
            rows = evaluate(weight, {}, program.sizes)
            if largest[node.inputs[-1]] >= rows:
                found = f"positions reach {largest[node.inputs[-1]]}, the embedding has {rows} rows"
                yield Finding(PROGRAM_RULES["program-index"], program.name, at, found)


def _unused_results(program: ForwardGraph) -> Iterator[Finding]:
    read = {i for node in program.nodes for i in node.inputs} | set(program.outputs)
    for at, node in enumerate(program.nodes):
        if at not in read and node.operator not in LEAVES and not in_place(node.operator):
            found = f"the result of {node.operator} is used by nothing"
            yield Finding(PROGRAM_RULES["program-results"], program.name, at, found)


def _unreached(program: ForwardGraph) -> Iterator[Finding]:
    reached = set(program.outputs)
    for at in range(len(program.nodes) - 1, -1, -1):
        if at in reached:
            reached.update(program.nodes[at].inputs)
    for at, node in enumerate(program.nodes):
        owns = any(leaf.kind == "parameter" and leaf.trained for leaf in node.leaves)
        if owns and at not in reached:
            found = f"the parameters of {node.operator} get no gradient"
            yield Finding(PROGRAM_RULES["program-parameters"], program.name, at, found)
