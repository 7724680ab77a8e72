"""Rules of whole training steps: what no program of PyTorch breaks, whatever its model.

A job may be sound for every reader of traces, and still not be a program: its backward pass is of
another model than its forward pass, its optimizer updates other parameters than those that have
gradients, its matrix products multiply matrices that no shapes have. Each rule here says to which
jobs it applies, looks at *cases* (nodes, pairs, messages), and reports the nodes of those that
break it. It needs names of ATen operators, data dependencies, FLOPs, bytes and sizes of messages,
as `layerdag.traces.pytorch` and `layerdag capture` count them (``hardware/operators.py``).

Views are not nodes of traces, so a node may work on a part of what its parent made. The backward
pass of a view is a node, and as large as the whole (``Operators.part_sizes``): where there is one,
a rule asks for no more than enough elements; elsewhere it asks for equal numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from layerdag.traces.analysis import gather_communication
from layerdag.traces.trace import NodeType, Workload
from layerdag.validation.operators import Operators, RuleOutcomes
from layerdag.validation.product_shapes import product_sizes
from layerdag.validation.rules import Finding, Rule, rules_in
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
_SAMPLE_AGAIN = "Sample another one; this one is no program."

WHOLE_PROGRAM_RULES = {
    name: replace(rule, remedy=rule.remedy or _NO_PROGRAM, if_sampled=_SAMPLE_AGAIN)
    for name, rule in rules_in("""
warning norm-widths
  A norm has another width than the product before it, or than others on its stream.
warning product-shapes
  A matrix product whose operations and bytes fit no shapes, or not those of its inputs.
warning optimizer-gradients
  An optimizer kernel works on more or fewer elements than the gradients it takes.
warning optimizer-kernels
  The kernels of an optimizer step work on different numbers of elements.
warning averaged-parameters
  Replicas average more or fewer gradients in all than the optimizer has parameters.
warning sent-as-made
  A collective or a message moves more or fewer elements than the operator before it made.
warning messages-return
  A pipeline stage gets back other gradient messages than it sent activations.
warning stages-update
  A rank has gradients of weights and never updates its parameters.
warning shards-gathered
  A sharded parameter is gathered without its copy in, its split, or its reduce-scatter.
warning shard-sizes
  Gathered, split or scattered parameters have other sizes than were copied in.
warning backward-per-forward
  There are more or fewer backward operators of a kind than forward ones.
warning backward-after-forward
  A backward operator has no forward operator before it.
warning backward-order
  The backward pass visits norms or attention in another order.
warning pair-sizes
  A backward operator works on other sizes than its forward operator.
warning elementwise-sizes
  An element-wise operator works on a number of elements that its input does not have.
warning bias-gradients
  The gradient of a bias is used by nothing.
warning training-updates
  A training step does not update any parameter.
  > Trace the optimizer's step, too, or take this for a part of a step.
warning training-loss
  A training step has no loss to start its backward pass from.
  > Trace the loss, too, or take this for a part of a step.
warning product-speed
  A matrix product is faster than its device can be.
""").items()
}
"""The rules by id; all of them are warnings."""


@dataclass(frozen=True)
class Verdict:
    """What one rule says of a job to which it applies.

    Attributes:
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


def _training(workload: Workload, ranks: Sequence[Operators], part: str) -> RuleOutcomes | None:
    """Ask whether a step with a backward pass has an optimizer, or a loss."""
    trains = [ops for ops in ranks if ops.trains]
    if not trains:
        return None
    if part == "optimizer":
        holds = any(ops.updates_N.any() for ops in trains)
    else:
        holds = any(ops.roots_N.any() or ops.computes_loss for ops in ranks)
    first = trains[0]
    rows = first.order[first.backward_N[first.order]][:1]
    found = f"the step has a backward pass and no {part}; here {first.name(rows[0])}"
    return first.cases(rows, np.array([holds]), lambda case: found)


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
    messages: dict[tuple[int, int], list[int]] = {}  # rows in ``events`` by sender and receiver
    ends = zip(events.source_K[sends].tolist(), events.target_K[sends].tolist(), strict=True)
    for way, row in zip(ends, sends.tolist(), strict=True):
        messages.setdefault(way, []).append(row)
    sent = {way: sorted(events.size_K[rows].tolist()) for way, rows in messages.items()}
    rounds = _rounds({way for way in sent if way[::-1] not in sent})
    pairs = sorted({min(way, way[::-1]) for way in sent if way not in rounds})
    if not pairs:
        return None
    at = [messages[pair if pair in sent else pair[::-1]][0] for pair in pairs]
    holds = [sent.get(pair, []) == sent.get(pair[::-1], []) for pair in pairs]

    def found(case: int) -> str:
        forth, back = (len(sent.get(way, [])) for way in (pairs[case], pairs[case][::-1]))
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
    "training-updates": partial(_training, part="optimizer"),
    "training-loss": partial(_training, part="loss"),
}


def judge_program(workload: Workload) -> dict[str, Verdict]:
    """Return what each rule that applies to a job says of it, by the rule's id.

    Ranks with the same operators, sizes and dependencies are looked at once. Nothing applies to a
    job of which most operators are not PyTorch's, or have no costs. ``check_workload`` must have
    found no error in the job.

    Raises:
        TraceError: If dependencies or attributes are faulty.
    """
    ranks: dict[bytes, Operators] = {}
    for trace, sharing in workload.ranks_by_trace():
        ops = Operators(trace, sharing[0], workload.groups, workload.num_ranks)
        if not ops.is_step:
            return {}
        ranks.setdefault(ops.fingerprint, ops)
    distinct = list(ranks.values())
    found: dict[str, Verdict] = {}
    for name, rule in WHOLE_PROGRAM_RULES.items():
        if name in _OF_JOBS:
            parts = [_OF_JOBS[name](workload, distinct)]
        else:
            parts = [_OF_RANKS[name](ops) for ops in distinct]
        known = [part for part in parts if part is not None]
        nodes: list[tuple[int, int]] = []
        said = ""
        for part in known:
            for case in np.flatnonzero(~part.holds_K).tolist():
                rank = int(part.rank_K[case])
                said = said or part.found(case)
                nodes.append((rank, int(workload.traces[rank].id_N[part.row_K[case]])))
        if known:
            count = sum(part.row_K.size for part in known)
            found[name] = Verdict(rule, count, tuple(nodes), said)
    return found


def check_program(workload: Workload) -> list[Finding]:
    """Return where a job is not a training step of PyTorch, a finding for each broken rule.

    ``check_workload`` must have found no error in the job.

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
