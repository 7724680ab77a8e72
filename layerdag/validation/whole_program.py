"""Rules of whole training steps: what no program of PyTorch breaks, whatever its model.

A job may be sound for every reader of traces, and still be no program: its backward pass is of
another model than its forward pass, its optimizer updates other parameters than those that have
gradients, its matrix products multiply matrices that no shapes have. Each rule here says to which
jobs it applies, looks at *cases* (nodes, pairs, messages), and tells the nodes of those that break
it. Needed are names of ATen operators, data dependencies, FLOPs, bytes and sizes of messages, as
`layerdag.traces.pytorch` and `layerdag capture` count them: two operations for a multiply-add, one
for each element of the largest tensor of every other operator, bytes of all tensors read and
written (``traces/pytorch/operators.py``).

Views are no nodes of traces, so a node may work on a part of what its parent made. The backward
pass of a view is a node, and as large as the whole (``Operators.part_sizes``): where there is one,
a rule asks for no more than enough elements; elsewhere it asks for equal numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.traces.analysis import gather_communication
from layerdag.traces.trace import NodeType, Trace, Workload
from layerdag.validation.operators import Operators, RuleOutcomes
from layerdag.validation.product_shapes import product_sizes
from layerdag.validation.rules import Finding, Rule, Severity, rule_table
from layerdag.validation.step_rules import (
    averaged_parameters,
    backward_after_forward,
    backward_order,
    backward_per_forward,
    bias_gradients,
    elementwise_sizes,
    norm_widths,
    optimizer_gradients,
    optimizer_kernels,
    pair_sizes,
    product_speed,
    sent_as_made,
    shard_sizes,
    shards_gathered,
)

_NO_PROGRAM = "No step of PyTorch does this; look how the trace was made."


def _rule(name: str, what: str, remedy: str = _NO_PROGRAM) -> Rule:
    again = "Sample another one; this one is no program."
    return Rule(name, Severity.WARNING, what, remedy, again)


WHOLE_PROGRAM_RULES = rule_table(
    _rule(
        "norm-widths",
        "A norm has another width than the product before it, or than others on its stream.",
    ),
    _rule(
        "product-shapes",
        "A matrix product whose operations and bytes fit no shapes, or not those of its inputs.",
    ),
    _rule(
        "optimizer-gradients",
        "An optimizer kernel works on more or fewer elements than the gradients it takes.",
    ),
    _rule(
        "optimizer-kernels",
        "The kernels of an optimizer step work on different numbers of elements.",
    ),
    _rule(
        "averaged-parameters",
        "Replicas average more or fewer gradients in all than the optimizer has parameters.",
    ),
    _rule(
        "sent-as-made",
        "A collective or a message moves more or fewer elements than the operator before it made.",
    ),
    _rule(
        "messages-return",
        "A pipeline stage gets back other gradient messages than it sent activations.",
    ),
    _rule("stages-update", "A rank has gradients of weights and never updates its parameters."),
    _rule(
        "shards-gathered",
        "A sharded parameter is gathered without its copy in, its split, or its reduce-scatter.",
    ),
    _rule(
        "shard-sizes",
        "Gathered, split or scattered parameters have other sizes than were copied in.",
    ),
    _rule(
        "backward-per-forward",
        "There are more or fewer backward operators of a kind than forward ones.",
    ),
    _rule("backward-after-forward", "A backward operator has no forward operator before it."),
    _rule("backward-order", "The backward pass visits norms or attention in another order."),
    _rule("pair-sizes", "A backward operator works on other sizes than its forward operator."),
    _rule(
        "elementwise-sizes",
        "An element-wise operator works on a number of elements that its input does not have.",
    ),
    _rule("bias-gradients", "The gradient of a bias is used by nothing."),
    _rule(
        "training-updates",
        "A training step does not update any parameter.",
        "Trace the optimizer's step, too, or take this for a part of a step.",
    ),
    _rule(
        "training-loss",
        "A training step has no loss to start its backward pass from.",
        "Trace the loss, too, or take this for a part of a step.",
    ),
    _rule("product-speed", "A matrix product is faster than its device can be."),
)
"""The rules by id; all of them are warnings."""


@dataclass(frozen=True)
class Verdict:
    """What one rule says of a job to which it applies.

    Attributes:
        rule: The rule.
        cases: Number of cases that it looked at.
        nodes: (rank, node id) of each case that breaks it.
        found: What the first of these has, "" if there is none.
    """

    rule: Rule
    cases: int
    nodes: tuple[tuple[int, int], ...]
    found: str = ""

    @property
    def holds(self) -> bool:
        """Whether no case breaks the rule."""
        return not self.nodes


# --- the ranks together --------------------------------------------------------------------------


def _training_updates(workload: Workload, ranks: Sequence[Operators]) -> RuleOutcomes | None:
    trains = [ops for ops in ranks if ops.trains]
    if not trains:
        return None
    updates = any(ops.updates_N.any() for ops in trains)
    return _one_case(trains[0], updates, "the step has a backward pass and no optimizer")


def _training_loss(workload: Workload, ranks: Sequence[Operators]) -> RuleOutcomes | None:
    trains = [ops for ops in ranks if ops.trains]
    if not trains:
        return None
    losses = any(ops.roots_N.any() or ops.computes_loss for ops in ranks)
    return _one_case(trains[0], losses, "the step has a backward pass and no loss")


def _one_case(ops: Operators, holds: bool, found: str) -> RuleOutcomes | None:
    rows = ops.order[ops.backward_N[ops.order]][:1]
    return ops.cases(rows, np.array([holds]), lambda case: f"{found}; here {ops.name(rows[0])}")


def _stages_update(workload: Workload, ranks: Sequence[Operators]) -> RuleOutcomes | None:
    trains = [ops for ops in ranks if ops.trains]
    updates = np.array([bool(ops.updates_N.any()) for ops in trains])
    if len(ranks) < 2 or not updates.any():
        return None
    rows = np.array([ops.order[ops.backward_N[ops.order]][0] for ops in trains])
    return RuleOutcomes(
        np.array([ops.rank for ops in trains]),
        rows,
        updates,
        lambda case: f"rank {trains[case].rank} has a backward pass and no optimizer",
    )


def _messages_return(workload: Workload, ranks: Sequence[Operators]) -> RuleOutcomes | None:
    if not any(ops.trains for ops in ranks):
        return None
    events = gather_communication(workload)
    sends = np.flatnonzero(events.type_K == NodeType.COMM_SEND)
    if not sends.size:
        return None
    ends_S2 = np.stack([events.source_K[sends], events.target_K[sends]], axis=1)
    sizes = events.size_K[sends]
    order = np.lexsort((sizes, ends_S2[:, 1], ends_S2[:, 0]))
    ways_W2, first = np.unique(ends_S2[order], axis=0, return_index=True)
    parts = np.split(sizes[order], first[1:])
    sent = {
        (int(source), int(target)): part
        for (source, target), part in zip(ways_W2, parts, strict=True)
    }
    row_of = {tuple(ends): at for ends, at in zip(ends_S2[::-1].tolist(), sends[::-1], strict=True)}
    rounds = _rounds({way for way in sent if way[::-1] not in sent})
    pairs = sorted({min(way, way[::-1]) for way in sent if way not in rounds})
    if not pairs:
        return None
    none = np.zeros(0, dtype=np.int64)
    at = [row_of[pair if pair in sent else pair[::-1]] for pair in pairs]
    holds = [np.array_equal(sent.get(pair, none), sent.get(pair[::-1], none)) for pair in pairs]

    def found(case: int) -> str:
        forth, back = (len(sent.get(way, none)) for way in (pairs[case], pairs[case][::-1]))
        few = f"{forth} messages go from rank {pairs[case][0]} to {pairs[case][1]} and {back} back"
        return few if forth != back else f"{few}, of other sizes"

    return RuleOutcomes(events.rank_K[at], events.row_K[at], np.array(holds), found)


def _rounds(ways: set[tuple[int, int]]) -> set[tuple[int, int]]:
    while True:
        sources, targets = {way[0] for way in ways}, {way[1] for way in ways}
        kept = {way for way in ways if way[0] in targets and way[1] in sources}
        if kept == ways:
            return ways
        ways = kept


_OF_RANKS: Mapping[str, Callable[[Operators], RuleOutcomes | None]] = {
    "norm-widths": norm_widths,
    "product-shapes": product_sizes,
    "optimizer-gradients": optimizer_gradients,
    "optimizer-kernels": optimizer_kernels,
    "averaged-parameters": averaged_parameters,
    "sent-as-made": sent_as_made,
    "shards-gathered": shards_gathered,
    "shard-sizes": shard_sizes,
    "backward-per-forward": backward_per_forward,
    "backward-after-forward": backward_after_forward,
    "backward-order": backward_order,
    "pair-sizes": pair_sizes,
    "elementwise-sizes": elementwise_sizes,
    "bias-gradients": bias_gradients,
    "product-speed": product_speed,
}
_OF_JOBS: Mapping[str, Callable[[Workload, Sequence[Operators]], RuleOutcomes | None]] = {
    "messages-return": _messages_return,
    "stages-update": _stages_update,
    "training-updates": _training_updates,
    "training-loss": _training_loss,
}


def judge_program(workload: Workload) -> dict[str, Verdict]:
    """Return what each rule that applies to a job says of it, by the rule's id.

    Ranks with the same operators, sizes and dependencies are looked at once. Nothing applies to a
    job of which most operators are not PyTorch's, or have no costs.

    Args:
        workload: A job that `check_workload` finds no error in.

    Raises:
        TraceError: If dependencies or attributes are faulty.
    """
    ranks: list[Operators] = []
    for ops in _distinct(workload):
        if not ops.is_step:
            return {}
        ranks.append(ops)
    if not ranks:
        return {}
    found: dict[str, Verdict] = {}
    for name, rule in WHOLE_PROGRAM_RULES.items():
        if name in _OF_JOBS:
            parts = [_OF_JOBS[name](workload, ranks)]
        else:
            parts = [_OF_RANKS[name](ops) for ops in ranks]
        known = [part for part in parts if part is not None]
        if known:
            found[name] = _verdict(workload, rule, known)
    return found


def _distinct(workload: Workload) -> Iterator[Operators]:
    seen_traces: set[int] = set()
    seen: set[bytes] = set()
    kept: list[Trace] = []
    for rank, trace in enumerate(workload.traces):
        if id(trace) in seen_traces:
            continue
        kept.append(trace)  # an id is that of one object as long as the object lives
        seen_traces.add(id(trace))
        ops = Operators(trace, rank, workload.groups, workload.num_ranks)
        if ops.fingerprint not in seen:
            seen.add(ops.fingerprint)
            yield ops


def _verdict(workload: Workload, rule: Rule, parts: Sequence[RuleOutcomes]) -> Verdict:
    nodes: list[tuple[int, int]] = []
    said = ""
    for part in parts:
        for case in np.flatnonzero(~part.holds_K).tolist():
            rank = int(part.rank_K[case])
            said = said or part.found(case)
            nodes.append((rank, int(workload.traces[rank].id_N[part.row_K[case]])))
    return Verdict(rule, sum(part.row_K.size for part in parts), tuple(nodes), said)


def check_program(workload: Workload) -> list[Finding]:
    """Return where a job is no training step of PyTorch, a finding for each broken rule.

    Args:
        workload: A job that `check_workload` finds no error in.

    Raises:
        TraceError: If dependencies or attributes are faulty.
    """
    findings = []
    for verdict in judge_program(workload).values():
        if verdict.holds:
            continue
        rank, node = verdict.nodes[0]
        where = workload.traces[rank].source
        where = f"{where} (rank {rank})" if workload.num_ranks > 1 else where
        count = len(set(verdict.nodes))
        findings.append(Finding(verdict.rule, where, node, verdict.found, count))
    return findings
