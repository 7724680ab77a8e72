"""The table of rules on execution traces, and ``Finding``: a rule, a place, the evidence.

The rules are what the readers of Chakra traces demand: feeder v1 (mlcommons/chakra), and feeder v3
with the analytical backend of ASTRA-sim 2.x, whose exit code 0 proves nothing: many of these faults
end there with a time that is too short, or with none and no message.
"""

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


_E, _W = Severity.ERROR, Severity.WARNING

TRACE_RULES = rule_table(
    Rule(
        "readable",
        _E,
        "The files cannot be read as a workload.",
        "Collect or convert the trace again.",
    ),
    Rule(
        "not-empty",
        _E,
        "A rank has no node; ASTRA-sim finds no free node and aborts.",
        "Drop the rank or add its nodes.",
    ),
    Rule(
        "distinct-ids",
        _E,
        "Two nodes of a rank have one id; the later silently replaces the earlier.",
        "Give every node of a rank its own id.",
    ),
    Rule(
        "no-dangling-dependency",
        _E,
        "A node waits for a node that the trace does not have; ASTRA-sim aborts.",
        "Add the node or drop the dependency.",
    ),
    Rule(
        "no-self-dependency",
        _E,
        "A node waits for itself; it is silently never run.",
        "Drop the dependency.",
    ),
    Rule(
        "acyclic",
        _E,
        "Nodes wait for each other over data and control dependencies; they are silently never "
        "run and the time is too short.",
        "Drop the dependency that closes the cycle; both kinds are enforced.",
    ),
    Rule(
        "no-double-dependency",
        _W,
        "A node lists a dependency twice.",
        "Keep one of each.",
    ),
    Rule(
        "no-metadata-node",
        _E,
        "A METADATA node, on which ASTRA-sim aborts in its statistics.",
        "Convert with 'layerdag convert', which takes such nodes out.",
    ),
    Rule(
        "no-invalid-node",
        _E,
        "An INVALID node, after which no rank finishes.",
        "Give the node its type or take it out.",
    ),
    Rule(
        "storage-nodes",
        _W,
        "A node of storage, a batch or a checkpoint (mlcommons/chakra#216), which no release of "
        "ASTRA-sim runs.",
        "Take these nodes out for ASTRA-sim; their children inherit what they waited for.",
    ),
    Rule(
        "storage-operation",
        _W,
        "A storage node without the message that says what it does.",
        "Write Node.storage, or give the node another type.",
    ),
    Rule(
        "numbers-in-range",
        _E,
        "A time or size beyond what a simulator can add up: 10^12 microseconds, 2^63 - 1 bytes or "
        "operations.",
        "Correct the number.",
    ),
    Rule(
        "required-attributes",
        _E,
        "A node lacks an attribute without which ASTRA-sim aborts.",
        "Write the attribute.",
    ),
    Rule(
        "integer-attributes",
        _E,
        "An attribute is a float, string or list where an integer is needed (bad_cast).",
        "Write it with an integer type.",
    ),
    Rule(
        "one-value",
        _E,
        "A node carries an attribute twice with different values; ASTRA-sim takes the first, other "
        "readers the last.",
        "Keep one.",
    ),
    Rule(
        "feeder-v1-types",
        _W,
        "An attribute has an integer type from which feeder v1 silently reads 0.",
        "Write the type that feeder v1 reads; 'layerdag convert' does.",
    ),
    Rule(
        "comm-off-cpu",
        _E,
        "A communication node is marked as running on the CPU; ASTRA-sim aborts or skips it.",
        "Write is_cpu_op = false.",
    ),
    Rule(
        "compute-off-cpu",
        _W,
        "Compute nodes run on the CPU; ASTRA-sim then loses its statistics.",
        "Mark the kernels of the computing device with is_cpu_op = false.",
    ),
    Rule(
        "supported-collective",
        _E,
        "A collective of a type that ASTRA-sim refuses.",
        "Use ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL or BROADCAST.",
    ),
    Rule(
        "broadcast-is-replayed",
        _W,
        "A BROADCAST, which ASTRA-sim does not simulate: it takes the node's duration.",
        "Give the node a measured duration.",
    ),
    Rule(
        "positive-sizes",
        _E,
        "A communication of negative size, an empty message, or an empty all-gather; the run hangs "
        "or aborts.",
        "Write the size in bytes, or take the node out.",
    ),
    Rule(
        "message-tags",
        _E,
        "A message with a negative tag, or one above 2^31 - 1; ASTRA-sim aborts or cuts it off.",
        "Write a tag from 0 to 2147483647.",
    ),
    Rule(
        "costed-compute",
        _W,
        "A compute node on the device with 0 FLOPs or 0 bytes; with the roofline switched on its "
        "time is NaN, or it and its children are skipped.",
        "Write num_ops and tensor_size, or run with the roofline off.",
        "Sample again: layerdag now fills in what a sample lacks. If training traces had no costs, "
        "run with the roofline off: each node carries its duration.",
    ),
    Rule(
        "time-at-start",
        _W,
        "The first operator of a rank's device, or a send or memory access that is its first "
        "communication, is so small that a fast device does it in 0 ns (with the roofline on, if "
        "it is an operator); ASTRA-sim aborts where a node takes 0 ns at tick 0.",
        "Let the step start with larger work (16 KiB are enough), or run with the roofline off.",
        "Run with the roofline off, or ask programs for a larger batch (--batch 64).",
    ),
    Rule(
        "involved-dim-type",
        _E,
        "involved_dim is not a bool_list; ASTRA-sim ends.",
        "Write it as bool_list or leave it out.",
    ),
    Rule(
        "group-names",
        _E,
        "pg_name is neither empty nor an integer in a string; ASTRA-sim aborts (stoi).",
        "Name groups by integers and describe them in the group file.",
    ),
    Rule(
        "described-groups",
        _E,
        "The group file has a name that is no integer above 0; ASTRA-sim aborts.",
        'Rename the group; "0" stands for all ranks and needs no entry.',
    ),
    Rule(
        "known-group",
        _E,
        "A collective in a group that the group file does not describe.",
        "Add the group to the group file.",
    ),
    Rule(
        "member-of-group",
        _E,
        "A rank takes part in a collective of a group that it does not belong to.",
        "Correct the group file or the trace.",
    ),
    Rule(
        "several-members",
        _E,
        "A collective in a group of one rank, in a job of several; its run never ends.",
        "Take the node out; it does nothing.",
    ),
    Rule(
        "known-peer",
        _E,
        "A message to or from a rank that the job does not have, or to itself.",
        "Correct comm_src and comm_dst.",
    ),
    Rule(
        "own-sender",
        _E,
        "A send whose comm_src is another rank, or a receive whose comm_dst is.",
        "Write the rank of the trace.",
    ),
    Rule(
        "collectives-agree",
        _E,
        "The members of a group disagree on a collective; the run hangs without a message.",
        "Let all members call it in the same order with one type and size.",
    ),
    Rule(
        "messages-match",
        _E,
        "A send without receive, a receive without send, or two sizes; the run hangs.",
        "Write both ends with the same ranks, tag and size.",
    ),
    Rule(
        "no-deadlock",
        _E,
        "Ranks wait for each other in a cycle.",
        "Order the communication the same way on all ranks.",
    ),
    Rule(
        "one-communication-order",
        _W,
        "Ranks issue blocking communication in orders that wait for each other in a cycle, if "
        "each runs one at a time in ascending id.",
        "Let ids ascend in one order of communication on all ranks.",
    ),
    Rule(
        "world-after-equal-groups",
        _E,
        "A collective of all ranks follows unequal numbers of group collectives; ASTRA-sim 2.x "
        "never matches it, so the run hangs.",
        "Name a group of all ranks and use it, or give all ranks equally many.",
    ),
    Rule(
        "ranks-communicate",
        _W,
        "A job of several ranks in which no rank communicates: as many jobs of one rank.",
        "Trace or sample the collectives and messages, too, or write each rank as its own job.",
    ),
)
