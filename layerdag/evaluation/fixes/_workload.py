"""All fixes of a workload, in the order in which one makes the next possible."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import final

from layerdag.evaluation.fixes import _communication as communication, _trace as alone
from layerdag.evaluation.fixes._fix import Fix, FixedWorkload, TraceFix, merged
from layerdag.evaluation.rules import (
    TRACE_RULES,
    check_group_file,
    check_workload,
    group_texts,
    is_group_name,
)
from layerdag.traces import Trace, Workload
from layerdag.traces.analysis import WORLD, WORLD_NAMES

_OF_A_TRACE: dict[str, Callable[[Trace], TraceFix | None]] = {
    "no-dangling-dependency": alone.drop_dangling,
    "no-self-dependency": alone.drop_own,
    "no-double-dependency": alone.drop_doubles,
    "integer-attributes": alone.write_integers,
    "feeder-v1-types": alone.write_feeder_types,
    "comm-off-cpu": alone.take_communication_off_the_cpu,
    "no-metadata-node": alone.take_out_metadata,
    "no-invalid-node": alone.take_out_invalid,
    "positive-sizes": communication.take_out_empty,
}
_WORLD_RULE = "world-after-equal-groups"
FIXABLE = frozenset(
    {*_OF_A_TRACE, "own-sender", "message-tags", "described-groups", "group-names"}
    | {"several-members", _WORLD_RULE}
)
"""Rules whose breaking can have one safe answer: it keeps which operators run at what cost, and
which ranks exchange what."""


def fix_workload(workload: Workload) -> FixedWorkload:
    """Change everything that breaks a rule and has one safe answer.

    What has none (a cycle, a missing size, members of a group that disagree) stays as it is, and
    is among the findings. Fixes drop dependencies that nothing can satisfy (on absent nodes, on
    the node itself, listed twice), write values in the types that readers expect, take nodes out
    that do nothing (METADATA, INVALID, 0 bytes, groups of one rank), give groups integers as names
    and messages tags that fit, and name the group of all ranks where ASTRA-sim needs it.

    Nothing is raised because of the content of the traces. The given workload is not changed.
    """
    repair = _Repair(workload)
    for rule, fix in _OF_A_TRACE.items():
        repair.each(rule, fix)
    repair.own_ranks()
    repair.tags()
    repair.group_names()
    repair.groups_of_one()
    repair.world()
    left = [*check_group_file(repair.workload), *check_workload(repair.workload)]
    return FixedWorkload(repair.workload, merged(repair.fixes), tuple(left))


@final
class _Repair:
    """A workload on its way, and what has been changed so far."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.fixes: list[Fix] = []

    def each(self, rule: str, fix: Callable[[Trace], TraceFix | None]) -> None:
        """Apply a fix to every trace; ranks that share one go on sharing it."""
        self._ranks(rule, lambda trace, rank: fix(trace), shared=True)

    def own_ranks(self) -> None:
        """Let messages name the rank in whose trace they stand."""
        self._ranks("own-sender", communication.name_own_rank, shared=False)

    def tags(self) -> None:
        """Give messages tags that fit."""
        tag_of = communication.tag_map(_distinct(self.workload))
        if tag_of:
            self.each("message-tags", partial(communication.renumber_tags, tag_of=tag_of))

    def group_names(self) -> None:
        """Give groups integers as names, in the group file and in the traces."""
        groups = dict(self.workload.groups)
        if groups.get(WORLD) and len(groups[WORLD]) == self.workload.num_ranks:
            del groups[WORLD]  # stands for all ranks without an entry
        odd = [name for name in groups if not is_group_name(name) and name not in WORLD_NAMES]
        name_of: dict[str, str] = {}
        for name in odd:
            name_of[name] = _free_name({*groups, *name_of.values()})
        renamed = {name_of.get(name, name): ranks for name, ranks in groups.items()}
        changed = len(odd) + len(self.workload.groups) - len(groups)
        if changed:
            done = "groups have integers above 0 as names"
            rule, where = TRACE_RULES["described-groups"], self.workload.source
            self.fixes.append(Fix(rule, where, None, done, changed))
            self.workload = replace(self.workload, groups=renamed)
        self.each("group-names", partial(communication.rename_groups, name_of=name_of))

    def groups_of_one(self) -> None:
        """Take collectives of one rank out of a job of several."""
        if self.workload.num_ranks > 1:
            found = frozenset(n for n, ranks in self.workload.groups.items() if len(ranks) == 1)
            self.each("several-members", partial(communication.take_out_alone, alone=found))

    def world(self) -> None:
        """Name the group of all ranks where collectives of groups come before unequally often."""
        broken = {finding.rule.id for finding in check_workload(self.workload)}
        if _WORLD_RULE not in broken:
            return
        used = {name for trace in _distinct(self.workload) for name in group_texts(trace)}
        name = _free_name({*self.workload.groups, *used})
        groups = {**self.workload.groups, name: tuple(range(self.workload.num_ranks))}
        self.each(_WORLD_RULE, partial(communication.name_the_world, name=name))
        self.workload = replace(self.workload, groups=groups)

    def _ranks(
        self, rule: str, fix: Callable[[Trace, int], TraceFix | None], *, shared: bool
    ) -> None:
        """Apply a fix to the trace of every rank, or once to each trace that ranks share."""
        before = tuple(self.workload.traces)  # holds the traces, so that their ids stay distinct
        known: dict[int, Trace] = {}
        traces: list[Trace] = []
        count = len(self.fixes)
        for rank, trace in enumerate(before):
            if not (shared and id(trace) in known):
                found = fix(trace, rank)
                known[id(trace)] = found.trace if found else trace
                if found:
                    self.fixes.append(found.as_fix(TRACE_RULES[rule], trace))
            traces.append(known[id(trace)])
        if len(self.fixes) > count:
            self.workload = replace(self.workload, traces=tuple(traces))


def _distinct(workload: Workload) -> list[Trace]:
    """Return each trace once that ranks share."""
    return list({id(trace): trace for trace in workload.traces}.values())


def _free_name(used: set[str]) -> str:
    """Return the lowest integer above 0 that is no name of a group yet."""
    return next(str(number) for number in range(1, len(used) + 2) if str(number) not in used)
