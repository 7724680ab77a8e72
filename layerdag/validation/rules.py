"""The table of rules on execution traces, and ``Finding``: a rule, a place, the evidence.

The rules are what the readers of Chakra traces demand: feeder v1 (mlcommons/chakra), and feeder v3
with the analytical backend of ASTRA-sim 2.x, whose exit code 0 proves nothing: many of these faults
end there with a time that is too short, or with none and no message.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TypeVar


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
        remedy: What to do about it, in one sentence, for who writes or converts the traces.
        if_sampled: The same for who sampled them, where it differs.
    """

    id: str
    severity: Severity
    what: str
    remedy: str = ""
    if_sampled: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the rule as plain JSON types."""
        return {
            "id": self.id,
            "severity": self.severity.value,
            "what": self.what,
            "remedy": self.remedy,
            "remedy_if_sampled": self.if_sampled or self.remedy,
        }


@dataclass(frozen=True)
class Finding:
    """One place where a rule is broken.

    Attributes:
        node: Id of the first node concerned, None where none is.
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
        return f"{_sentence(self.where, self.node, self.found, self.count)} {self.remedy}"

    def to_json(self) -> dict[str, str | int | None]:
        """Return the finding as plain JSON types."""
        return {
            "rule": self.rule.id,
            "severity": self.rule.severity.value,
            "where": self.where,
            "node": self.node,
            "found": self.found,
            "count": self.count,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Fix:
    """One rule that a workload broke, and what was changed so that it holds.

    Attributes:
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
        return _sentence(self.where, self.node, self.done, self.count)

    def to_json(self) -> dict[str, str | int | None]:
        """Return the fix as plain JSON types."""
        return asdict(self) | {"rule": self.rule.id}


def _sentence(where: str, node: int | None, text: str, count: int) -> str:
    location = where if node is None else f"{where}: node {node}"
    more = f" (and {count - 1} more)" if count > 1 else ""
    return f"{location}: {text}{more}."


Counted = TypeVar("Counted", Finding, Fix)


def merged(found: Iterable[Counted], key: Callable[[Counted], object]) -> list[Counted]:
    """Return one finding or fix for each key: the first, with the count of all."""
    kept: dict[object, Counted] = {}
    for each in found:
        known = kept.get(key(each))
        kept[key(each)] = replace(known, count=known.count + each.count) if known else each
    return list(kept.values())


def has_errors(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is an error rather than a warning."""
    return any(finding.rule.severity is Severity.ERROR for finding in findings)


def rule_table(*rules: Rule) -> dict[str, Rule]:
    """Return the rules by id; ids are distinct."""
    table = {rule.id: rule for rule in rules}
    assert len(table) == len(rules), "rule ids must be distinct"
    return table


def rules_in(text: str) -> dict[str, Rule]:
    """Return the rules of a text by id.

    A rule begins with a line that has its severity and id. What is wrong follows, then behind ">"
    the remedy, and behind another ">" the one for who sampled the traces.
    """
    rules = []
    for block in re.split(r"\n(?=\w)", text.strip()):
        head, _, body = block.partition("\n")
        severity, name = head.split()
        what, *remedies = (" ".join(part.split()) for part in body.split("  > "))
        rules.append(Rule(name, Severity(severity), what, *remedies))
    return rule_table(*rules)


TRACE_RULES = rules_in("""
error readable
  The files cannot be read as a workload.
  > Collect or convert the trace again.
error not-empty
  A rank has no node; ASTRA-sim finds no free node and aborts.
  > Drop the rank or add its nodes.
error distinct-ids
  Two nodes of a rank have one id; the later silently replaces the earlier.
  > Give every node of a rank its own id.
error no-dangling-dependency
  A node waits for a node that the trace does not have; ASTRA-sim aborts.
  > Add the node or drop the dependency.
error no-self-dependency
  A node waits for itself; it is silently never run.
  > Drop the dependency.
error acyclic
  Nodes wait for each other over data and control dependencies; they are silently never run and the
  time is too short.
  > Drop the dependency that closes the cycle; both kinds are enforced.
warning no-double-dependency
  A node lists a dependency twice.
  > Keep one of each.
error no-metadata-node
  A METADATA node, on which ASTRA-sim aborts in its statistics.
  > Convert with 'layerdag convert', which takes such nodes out.
error no-invalid-node
  An INVALID node, after which no rank finishes.
  > Give the node its type or take it out.
warning storage-nodes
  A node of storage, a batch or a checkpoint (mlcommons/chakra#216), which no release of ASTRA-sim
  runs.
  > Take these nodes out for ASTRA-sim; their children inherit what they waited for.
warning storage-operation
  A storage node without the message that says what it does.
  > Write Node.storage, or give the node another type.
error numbers-in-range
  A time or size beyond what a simulator can add up: 10^12 microseconds, 2^63 - 1 bytes or
  operations.
  > Correct the number.
error required-attributes
  A node lacks an attribute without which ASTRA-sim aborts.
  > Write the attribute.
error integer-attributes
  An attribute is a float, string or list where an integer is needed (bad_cast).
  > Write it with an integer type.
error one-value
  A node carries an attribute twice with different values; ASTRA-sim takes the first, other readers
  the last.
  > Keep one.
warning feeder-v1-types
  An attribute has an integer type from which feeder v1 silently reads 0.
  > Write the type that feeder v1 reads; 'layerdag convert' does.
error comm-off-cpu
  A communication node is marked as running on the CPU; ASTRA-sim aborts or skips it.
  > Write is_cpu_op = false.
warning compute-off-cpu
  Compute nodes run on the CPU; ASTRA-sim then loses its statistics.
  > Mark the kernels of the computing device with is_cpu_op = false.
error supported-collective
  A collective of a type that ASTRA-sim refuses.
  > Use ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL or BROADCAST.
warning broadcast-is-replayed
  A BROADCAST, which ASTRA-sim does not simulate: it takes the node's duration.
  > Give the node a measured duration.
error positive-sizes
  A communication of negative size, an empty message, or an empty all-gather; the run hangs or
  aborts.
  > Write the size in bytes, or take the node out.
error message-tags
  A message with a negative tag, or one above 2^31 - 1; ASTRA-sim aborts or cuts it off.
  > Write a tag from 0 to 2147483647.
warning costed-compute
  A compute node on the device with 0 FLOPs or 0 bytes; with the roofline switched on its time is
  NaN, or it and its children are skipped.
  > Write num_ops and tensor_size, or run with the roofline off.
  > Sample again: layerdag now fills in what a sample lacks. If training traces had no costs, run
    with the roofline off: each node carries its duration.
warning time-at-start
  The first operator of a rank's device, or a send or memory access that is its first communication,
  is so small that a fast device does it in 0 ns (with the roofline on, if it is an operator);
  ASTRA-sim aborts where a node takes 0 ns at tick 0.
  > Let the step start with larger work (16 KiB are enough), or run with the roofline off.
  > Run with the roofline off, or ask programs for a larger batch (--batch 64).
error involved-dim-type
  involved_dim is not a bool_list; ASTRA-sim ends.
  > Write it as bool_list or leave it out.
error group-names
  pg_name is neither empty nor an integer in a string; ASTRA-sim aborts (stoi).
  > Name groups by integers and describe them in the group file.
error described-groups
  The group file has a name that is no integer above 0; ASTRA-sim aborts.
  > Rename the group; "0" stands for all ranks and needs no entry.
error known-group
  A collective in a group that the group file does not describe.
  > Add the group to the group file.
error member-of-group
  A rank takes part in a collective of a group that it does not belong to.
  > Correct the group file or the trace.
error several-members
  A collective in a group of one rank, in a job of several; its run never ends.
  > Take the node out; it does nothing.
error known-peer
  A message to or from a rank that the job does not have, or to itself.
  > Correct comm_src and comm_dst.
error own-sender
  A send whose comm_src is another rank, or a receive whose comm_dst is.
  > Write the rank of the trace.
error collectives-agree
  The members of a group disagree on a collective; the run hangs without a message.
  > Let all members call it in the same order with one type and size.
error messages-match
  A send without receive, a receive without send, or two sizes; the run hangs.
  > Write both ends with the same ranks, tag and size.
error no-deadlock
  Ranks wait for each other in a cycle.
  > Order the communication the same way on all ranks.
warning one-communication-order
  Ranks issue blocking communication in orders that wait for each other in a cycle, if each runs one
  at a time in ascending id.
  > Let ids ascend in one order of communication on all ranks.
error world-after-equal-groups
  A collective of all ranks follows unequal numbers of group collectives; ASTRA-sim 2.x never
  matches it, so the run hangs.
  > Name a group of all ranks and use it, or give all ranks equally many.
warning ranks-communicate
  A job of several ranks in which no rank communicates: as many jobs of one rank.
  > Trace or sample the collectives and messages, too, or write each rank as its own job.
""")
