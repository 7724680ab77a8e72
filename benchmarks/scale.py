"""Scale one run of a pair to the other, and compare: operators, groups, bytes.

    python benchmarks/scale.py --twins FOLDER --json results/scale.json

Pairs are runs of the corpus and their twins (``python data/make_twins.py``): the same run on two
ranks instead of four, or with more layers. Three things are compared, rank by rank: the multiset of
operators (name, type, collective), with their operations and bytes and the bytes that they
communicate, and the ranks of every group in which something is communicated. Pairs are split by a
hash of the run's name into those that rules were written with ("development") and others ("held").
"""

import argparse
import json
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import LayerdagError
from layerdag.graph.repeats import RepeatedProgram, repeated_runs
from layerdag.runtime.files import write_text
from layerdag.runtime.terminal import track
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.analysis import group_names, match_communication
from layerdag.traces.chakra.corpus import RunRecord, read_index, read_runs
from layerdag.traces.trace import Trace, Workload, dependency_edges
from layerdag.workloads.scaling.layers import colors
from layerdag.workloads.scaling.program import EditableProgram
from layerdag.workloads.scaling.rescaling import scale

HELD = 0.5


@dataclass(frozen=True, eq=False)
class Pair:
    """Two runs of which one is predicted from the other.

    Attributes:
        name: Of the twin.
        record: Of the run of the corpus.
        source: What is scaled.
        target: What should come out.
        asked: Arguments of ``scale``.
    """

    name: str
    record: RunRecord
    source: Workload
    target: Workload
    asked: dict[str, Any]

    @property
    def kind(self) -> str:
        """What is predicted."""
        return "ranks" if "ranks" in self.asked else "layers"

    @property
    def part(self) -> str:
        """Part of the pairs: by a hash of the name."""
        return "held" if zlib.crc32(self.record.run.encode()) / 2**32 < HELD else "development"


def pairs(corpus: Path, twins: Path, only: str = "") -> Iterator[Pair]:
    """Yield all pairs."""
    of_run = {record.run: record for record in read_index(corpus)}
    records = [record for record in read_index(twins) if only in record.run]
    wanted = [of_run[record.run.partition(".")[0]] for record in records]
    runs = {run.record.run: run.workload() for run in read_runs(corpus, wanted)}
    for run in read_runs(twins, records):
        name, _, what = run.record.run.partition(".")
        if what.startswith("ws"):
            yield Pair(run.record.run, of_run[name], run.workload(), runs[name], {"ranks": 4})
        else:
            deep = {"layers": int(run.record.hyper["depth"])}
            deep["layers_now"] = int(of_run[name].hyper["depth"])
            yield Pair(run.record.run, of_run[name], runs[name], run.workload(), deep)


def operators(trace: Trace) -> Counter[tuple[Any, ...]]:
    """Return the operators of a rank: name, type, collective, operations, bytes, message."""
    columns = [trace.integers(name)[0].tolist() for name in ("num_ops", "tensor_size", "comm_size")]
    kind_N = trace.integers("comm_type", -1)[0].tolist()
    return Counter(zip(trace.names(), trace.type_N.tolist(), kind_N, *columns, strict=True))


def groups(workload: Workload, rank: int) -> Counter[tuple[int, ...]]:
    """Return how often a rank communicates in each set of ranks."""
    names, _ = group_names(workload.traces[rank])
    everyone = tuple(range(workload.num_ranks))
    joins_N = (workload.traces[rank].type_N == 7).tolist()
    return Counter(
        tuple(sorted(workload.groups.get(name, everyone)))
        for name, joins in zip(names, joins_N, strict=True)
        if joins
    )


def compare(pair: Pair) -> dict[str, Any]:
    """Scale the source of a pair; return what differs from its target."""
    about: dict[str, Any] = {
        "pair": pair.name,
        "family": pair.record.family,
        "plan": pair.record.strategy,
        "kind": pair.kind,
        "part": pair.part,
    }
    try:
        made = scale(pair.source, **pair.asked).workload
    except LayerdagError as error:
        return {**about, "refused": str(error)}
    about["runs"] = runs(made)
    same_names = same_costs = same_bytes = same_groups = made.num_ranks == pair.target.num_ranks
    missing: Counter[str] = Counter()
    for rank in range(min(made.num_ranks, pair.target.num_ranks)):
        mine, theirs = operators(made.traces[rank]), operators(pair.target.traces[rank])
        same_names &= _only(mine, 3) == _only(theirs, 3)
        same_costs &= mine == theirs
        same_bytes &= _only(mine, slice(5, 6)) == _only(theirs, slice(5, 6))
        same_groups &= groups(made, rank) == groups(pair.target, rank)
        if rank == 0:
            missing.update(f"lacks {_word(key)}" for key in (theirs - mine))
            missing.update(f"has too many {_word(key)}" for key in (mine - theirs))
    return {
        **about, "operators": same_names, "groups": same_groups, "messages": same_bytes,
        "costs": same_costs, "all": same_names and same_groups and same_bytes and same_costs,
        "differences": dict(missing.most_common(6)),
    }  # fmt: skip


def runs(workload: Workload) -> bool:
    """Return whether all communication matches, and a simulated cluster comes to the end."""
    matched = not match_communication(workload).mismatches
    return matched and simulate(workload, Cluster.preset("small")).makespan_ns > 0


def unrolled(corpus: Path) -> dict[str, int]:
    """Return how many programs of the corpus have repeated blocks, and unroll to themselves."""
    found = {"programs": 0, "with blocks": 0, "equal": 0}
    for run in read_runs(corpus, track(read_index(corpus), "blocks")):
        for trace in run.traces:
            program = EditableProgram.from_trace(trace, (0,))
            color_N, edges = colors(program), dependency_edges(program.trace)
            order_E = np.lexsort((edges[1], edges[0][0], edges[0][1]))
            outer = repeated_runs(color_N)
            equal = True
            for count in {run.count for run in outer}:
                alike = [run for run in outer if run.count == count]
                back = [at % 2 == 1 for at in range(len(alike))]
                made = RepeatedProgram.fold(program.num_nodes, edges, alike, back).unrolled()
                equal &= np.array_equal(made.row_N, np.arange(program.num_nodes))
                equal &= np.array_equal(made.edge_index_2E, edges[0][:, order_E])
                equal &= np.array_equal(made.edge_type_E, edges[1][order_E])
            found["programs"] += 1
            found["with blocks"] += bool(outer)
            found["equal"] += equal
    return found


def _only(found: Counter[tuple[Any, ...]], until: int | slice) -> Counter[tuple[Any, ...]]:
    """Return the multiset of some of the columns."""
    kept: Counter[tuple[Any, ...]] = Counter()
    for key, count in found.items():
        kept[key[:until] if isinstance(until, int) else key[until]] += count
    return kept


def _word(key: tuple[Any, ...]) -> str:
    return f"{key[0]} ({key[3]} operations, {key[4]} bytes, {key[5]} sent)"


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return shares of equal pairs by kind, part and plan."""
    cells: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        for part in (result["part"], "both"):
            for plan in (result["plan"], "all plans"):
                cells[f"{result['kind']}/{part}/{plan}"].append(result)
    return {
        name: {
            "pairs": len(found),
            "runs": sum(bool(result.get("runs")) for result in found),
            "refused": sum("refused" in result for result in found),
            **{
                what: sum(bool(result.get(what)) for result in found)
                for what in ("operators", "groups", "messages", "costs", "all")
            },
        }
        for name, found in sorted(cells.items())
    }


def main() -> int:
    """Compare all pairs and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=Path("data"))
    parser.add_argument("--twins", type=Path, default=Path("data/twins"))
    parser.add_argument("--only", default="", help="pairs whose name holds this")
    parser.add_argument("--json", type=Path, help="where the figures go")
    args = parser.parse_args()
    results = [compare(pair) for pair in track(pairs(args.corpus, args.twins, args.only), "pairs")]
    found = summary(results)
    blocks = unrolled(args.corpus) if not args.only else {}
    figures = {
        "summary": found,
        "blocks": blocks,
        "pairs": [r for r in results if not r.get("all")],
    }
    if args.json:
        write_text(args.json, json.dumps(figures, indent=1) + "\n")
    for name, cell in found.items():
        print(f"{name:<36}" + "  ".join(f"{key} {value}" for key, value in cell.items()))
    print(f"blocks: {blocks}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
