"""Random graphs of jobs with several stages, for tests of unfolding."""

import numpy as np
from random_graphs import random_dag

from layerdag.codec.folding import EDGE_TYPES, MESSAGE, NONE
from layerdag.graph.attributed_graph import AttributedGraph


def random_job(seed: int, num_stages: int, *, layers: int = 6) -> AttributedGraph:
    """Return a job in which every stage has work of its own."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, layers).tolist()
    sizes[0] = max(sizes[0], num_stages)
    dag = random_dag(rng, sizes, [4], extra_edges=0.8, num_edge_types=2)
    stage_N = rng.integers(0, num_stages, dag.num_nodes)
    stage_N[:num_stages] = np.arange(num_stages)
    kind_N = rng.choice(["COMP", "COMP", "COMM_COLL", MESSAGE], dag.num_nodes)
    kind_N[:num_stages] = "COMP"
    rows = [
        _node(rng, kind, stage, num_stages)
        for kind, stage in zip(kind_N.tolist(), stage_N.tolist(), strict=True)
    ]
    for stage in range(num_stages):
        # Different work in each, so that stages are different programs.
        rows[stage]["op"] = f"aten::{('add', 'mul', 'mm', 'relu')[stage]}"
    comm_N = np.array([row["type"] != "COMP" for row in rows])
    return AttributedGraph(
        name=f"job-{seed}",
        categories={name: [row[name] for row in rows] for name in rows[0]},
        numbers={
            "flops": rng.integers(1, 10**6, len(rows)).astype(float),
            "bytes": rng.integers(1, 10**6, len(rows)).astype(float),
            "comm_bytes": np.where(comm_N, rng.integers(1, 10**6, len(rows)), np.nan),
            "duration": rng.integers(1, 100, len(rows)) * 1000.0,
        },
        edge_index_2E=dag.edge_index_2E.numpy(),
        edge_type_E=dag.edge_type_E.numpy(),
        edge_type_names=EDGE_TYPES,
        conditions={"world_size": str(num_stages)},
    )


def _node(rng: np.random.Generator, kind: str, stage: int, num_stages: int) -> dict[str, str]:
    """Return the words of one node that does not contradict itself."""
    if num_stages == 1 and kind == MESSAGE:
        kind = "COMP"
    row = {
        "op": "aten::sub", "type": kind, "collective": NONE, "group": NONE,
        "stage": str(stage), "peer": NONE, "device": "cpu", "dtype": "float32",
    }  # fmt: skip
    if kind == MESSAGE:
        shift = int(rng.integers(1, num_stages))
        row.update(op="c10d::send", peer=str((stage + shift) % num_stages))
    if kind == "COMM_COLL":
        joint = num_stages > 1 and rng.random() < 0.7
        row.update(
            op="c10d::all_reduce",
            collective="ALL_REDUCE",
            stage="all" if joint else str(stage),
            group="world" if joint or num_stages == 1 else "stage",
        )
    return row
