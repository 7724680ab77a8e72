"""``ld.diff``: align two workloads or graphs and compare them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from layerdag.codec.formats import read
from layerdag.differences.alignment import (
    OperatorSequence,
    RankKind,
    kinds_of_ranks,
    program_of_graph,
)
from layerdag.differences.difference import (
    PARTS,
    TIMES,
    AlignedPair,
    CommunicationDelta,
    Difference,
    Operator,
    PairedValue,
)
from layerdag.errors import TraceError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.topology import longest_path
from layerdag.runtime.settings import did_you_mean
from layerdag.runtime.terminal import track
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.analysis import collective_name, gather_communication
from layerdag.traces.trace import NodeType, Workload


def compare_aligned(
    a: Workload | AttributedGraph,
    b: Workload | AttributedGraph,
    *,
    ignore: Sequence[str] = (),
    makespans_ns: tuple[int, int] | None = None,
) -> Difference:
    """Align two workloads or two graphs and return what differs.

    Nodes correspond if they have the same operator and stand at the same place among their like
    (``Alignment``). Ids, tags, names of groups and numbers in names (layer 3) do not count; rank r
    of one job is compared with rank r of the other.

    Args:
        a: A workload or a graph.
        b: Another one of the same kind.
        ignore: Parts of ``PARTS`` that do not count as differences, such as ("time",).
        makespans_ns: Of A and of B where they were simulated, in nanoseconds.

    Raises:
        UsageError: If one is a graph and the other a workload, or a part is unknown.
        TraceError: If a trace's dependencies are faulty, or a job has no ranks.
        GraphError: If a graph has a cycle.
    """
    for part in ignore:
        if part not in PARTS:
            raise UsageError(
                f"ignore: there is no part '{part}'.{did_you_mean(part, PARTS)} Known: "
                f"{', '.join(PARTS)}."
            )
    if isinstance(a, Workload) and isinstance(b, Workload):
        for workload, which in ((a, "first"), (b, "second")):
            if not workload.num_ranks:
                raise TraceError(
                    f"{workload.source}: the {which} job has no ranks; give the traces of one at "
                    "least."
                )
        return _of_workloads(a, b, tuple(ignore), makespans_ns)
    if isinstance(a, AttributedGraph) and isinstance(b, AttributedGraph):
        return _of_graphs(a, b, tuple(ignore))
    raise UsageError(
        "A graph and traces cannot be compared; give two graphs, or the traces of two jobs."
    )


def _of_workloads(
    a: Workload, b: Workload, ignore: tuple[str, ...], makespans_ns: tuple[int, int] | None
) -> Difference:
    kinds_a, kinds_b = kinds_of_ranks(a), kinds_of_ranks(b)
    pairs = list(_pairs(kinds_a, kinds_b, min(a.num_ranks, b.num_ranks)))
    aligned = [AlignedPair.from_sequences(*pair) for pair in track(pairs, "aligning", len(pairs))]
    times = list(_times(aligned))
    if makespans_ns:
        before_ns, after_ns = makespans_ns
        times.append(PairedValue("simulated makespan", before_ns / 1000, after_ns / 1000, "us"))
    return replace(
        _aligned(a.source, b.source, aligned),
        ranks=(a.num_ranks, b.num_ranks),
        times=tuple(times),
        communication=tuple(_communication(a, b)),
        ignored=ignore,
    )


def _of_graphs(a: AttributedGraph, b: AttributedGraph, ignore: tuple[str, ...]) -> Difference:
    edge_types = tuple(dict.fromkeys((*a.edge_type_names, *b.edge_type_names)))
    pair = AlignedPair.from_sequences(
        "graph", *(program_of_graph(graph, edge_types) for graph in (a, b))
    )
    labels = {
        name: (a.conditions.get(name), b.conditions.get(name))
        for name in dict.fromkeys((*a.conditions, *b.conditions))
        if not _same(a.conditions.get(name), b.conditions.get(name))
    }
    return replace(_aligned(a.name, b.name, [pair]), labels=labels, ignored=ignore)


def _same(a: float | str | None, b: float | str | None) -> bool:
    return a == b or (a != a and b != b)


def _aligned(a: str, b: str, aligned: Sequence[AlignedPair]) -> Difference:
    stretches = [stretch for pair in aligned for stretch in pair.stretches()]
    blocks = [block for pair in aligned for block in pair.blocks()]
    return Difference(
        a=a,
        b=b,
        ranks=None,
        programs=tuple(pair.programs() for pair in aligned),
        operators=tuple(_operators(aligned)),
        stretches=tuple(sorted(stretches, key=lambda s: -s.length)),
        blocks=tuple(sorted(blocks, key=lambda k: -k.nodes * abs(k.count[1] - k.count[0]))),
        times=(),
        communication=(),
        notes=tuple(_notes(aligned)),
    )


def _notes(aligned: Sequence[AlignedPair]) -> Iterator[str]:
    rough = [pair.name for pair in aligned if not pair.alignment.exact]
    if rough:
        which = rough[0] + (f" and {len(rough) - 1} more" if len(rough) > 1 else "")
        yield f"{which}: so much differs that nodes were aligned half by half; fewer may differ."


def _pairs(
    kinds_a: Sequence[RankKind], kinds_b: Sequence[RankKind], shared: int
) -> Iterator[tuple[str, OperatorSequence, OperatorSequence]]:
    of_a, of_b = (
        {rank: number for number, kind in enumerate(kinds) for rank in kind.ranks}
        for kinds in (kinds_a, kinds_b)
    )
    met: dict[tuple[int, int], list[int]] = {}
    for rank in range(shared):
        met.setdefault((of_a[rank], of_b[rank]), []).append(rank)
    for (at_a, at_b), ranks in met.items():
        yield _ranks(ranks), kinds_a[at_a].program, kinds_b[at_b].program
    for side, kinds in enumerate((kinds_a, kinds_b)):
        for number, kind in enumerate(kinds):
            if number not in {pair[side] for pair in met}:
                none, some = OperatorSequence.empty(kind.program), kind.program
                first, second = (none, some) if side else (some, none)
                yield _ranks(kind.ranks), first, second


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    consecutive = ranks[-1] - ranks[0] + 1 == len(ranks)
    if consecutive:
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"{len(ranks)} ranks, the first is {ranks[0]}"


def _operators(aligned: Sequence[AlignedPair]) -> list[Operator]:
    columns = list(dict.fromkeys(n for p in aligned for s in (p.a, p.b) for n in s.columns))
    timeless = [name for name in columns if name not in TIMES]
    sums: list[dict[str, Counter[str]]] = [
        {name: Counter() for name in ("count", *columns)} for _ in range(2)
    ]
    changed: Counter[str] = Counter()
    for pair in aligned:
        for side, program in enumerate((pair.a, pair.b)):
            _add(program, sums[side])
        changed.update(pair.a.operators[row] for row in pair.changed(timeless).tolist())
    names = dict.fromkeys((*sums[0]["count"], *sums[1]["count"]))
    present = [name for name in columns if any(side[name] for side in sums)]
    found = [
        Operator(
            name,
            (sums[0]["count"][name], sums[1]["count"][name]),
            {c: (sums[0][c].get(name), sums[1][c].get(name)) for c in present},
            changed[name],
        )
        for name in names
    ]
    return sorted(found, key=lambda o: (not o.differs, -abs(o.count[1] - o.count[0]), -o.changed))


def _add(program: OperatorSequence, sums: Mapping[str, Counter[str]]) -> None:
    own_N = ~program.is_communication_N
    rows = np.flatnonzero(own_N).tolist()
    sums["count"].update(program.operators[row] for row in rows)
    for name, value_N in program.columns.items():
        for row in np.flatnonzero(own_N & ~np.isnan(value_N)).tolist():
            sums[name][program.operators[row]] += value_N[row]


def _times(aligned: Sequence[AlignedPair]) -> Iterator[PairedValue]:
    """Yield sums of durations over one rank of each pair of kinds; nothing if none is stated."""
    sides = [[pair.a for pair in aligned], [pair.b for pair in aligned]]
    if not any(program.columns["duration_us"].any() for side in sides for program in side):
        return
    for name, communication in (("compute", False), ("recorded communication", True)):
        of_a, of_b = (
            sum(
                float(p.columns["duration_us"][p.is_communication_N == communication].sum())
                for p in side
            )
            for side in sides
        )
        yield PairedValue(name, float(of_a), float(of_b), "us")
    longest = [
        max(longest_path(p.layer_N, p.edges_2E, p.columns["duration_us"]).length for p in side)
        for side in sides
    ]
    yield PairedValue("critical path", longest[0], longest[1], "us")
    other = sum(pair.changed(TIMES).size for pair in aligned)
    yield PairedValue("aligned nodes with another duration", 0.0, float(other))


def _communication(a: Workload, b: Workload) -> list[CommunicationDelta]:
    of_a, of_b = _events(a), _events(b)
    rows = [
        CommunicationDelta(kind, ranks, (first[0], second[0]), (first[1], second[1]))
        for kind, ranks in dict.fromkeys((*of_a, *of_b))
        for first, second in [(of_a.get((kind, ranks), (0, 0)), of_b.get((kind, ranks), (0, 0)))]
    ]
    return sorted(rows, key=lambda r: (not r.differs, -abs(r.bytes[1] - r.bytes[0])))


def _events(workload: Workload) -> dict[tuple[str, int], tuple[int, int]]:
    events = gather_communication(workload)
    sizes = np.array([0, workload.num_ranks, *map(len, workload.groups.values())])
    found: dict[tuple[str, int], tuple[int, int]] = {}
    collective_K = events.type_K == NodeType.COMM_COLL
    for group in np.unique(events.group_K[collective_K]).tolist():
        of_group_K = collective_K & (events.group_K == group)
        one_K = of_group_K & (events.rank_K == events.rank_K[of_group_K].min())
        for kind in np.unique(events.comm_type_K[one_K]).tolist():
            at_K = one_K & (events.comm_type_K == kind)
            key = collective_name(kind), int(sizes[group + 1])
            count, total = found.get(key, (0, 0))
            size = int(np.maximum(events.size_K[at_K], 0).sum())
            found[key] = count + int(at_K.sum()), total + size
    sent_K = events.type_K == NodeType.COMM_SEND
    if sent_K.any():
        size = int(np.maximum(events.size_K[sent_K], 0).sum())
        found["message", 2] = int(sent_K.sum()), size
    return found


def diff(
    a: Workload | AttributedGraph | str | Path,
    b: Workload | AttributedGraph | str | Path,
    *,
    ignore: Sequence[str] = (),
    cluster: Cluster | None = None,
) -> Difference:
    """Align two traces, jobs or graphs and return what differs.

    Nodes correspond if they have the same operator and stand at the same place among their like.
    Ids, tags, names of groups and numbers in names do not count. ``print(ld.diff(a, b))`` shows
    what ``layerdag diff`` shows.

    Args:
        a: A workload, a graph, or whatever ``layerdag.read`` reads.
        b: Another one of the same kind.
        ignore: What does not count: "operators", "structure", "time", "communication", "labels".
        cluster: Where both jobs are simulated to compare their makespans.

    Raises:
        UsageError: If one is a graph and the other traces, or a part is unknown.
        DataError: If one cannot be read or is faulty.
    """
    first, second = (read(x) if isinstance(x, str | Path) else x for x in (a, b))
    makespans = None
    if cluster is not None:
        if not (isinstance(first, Workload) and isinstance(second, Workload)):
            raise UsageError("Graphs cannot be simulated; leave the cluster out.")
        makespans = (
            simulate(first, cluster).makespan_ns,
            simulate(second, cluster).makespan_ns,
        )
    return compare_aligned(first, second, ignore=ignore, makespans_ns=makespans)
