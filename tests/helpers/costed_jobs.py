"""Small jobs whose FLOPs and bytes follow from a width: a product, an activation, backward."""

import numpy as np

from layerdag.codec.folding import CATEGORIES, EDGE_TYPES
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.schema.schema import GraphSchema

ROWS = 16
OPS = ("aten::mm", "aten::relu", "aten::threshold_backward", "aten::mm", "c10d::all_reduce")
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4)]


def costed_job(
    width: int, *, label: float | None = None, ns_per_flop: float = 1.0, name: str = "job"
) -> AttributedGraph:
    """Return a job of a layer of this width on 16 rows, its gradient and their all-reduce."""
    product = (2 * ROWS * width * width, 4 * (2 * ROWS * width + width * width))
    elements = ROWS * width
    flops = [product[0], elements, elements, product[0], np.nan]
    moved = [product[1], 8 * elements, 12 * elements, product[1], 8 * width * width]
    sent = [np.nan] * 4 + [4.0 * width * width]
    words = {
        "op": list(OPS),
        "type": ["COMP"] * 4 + ["COMM_COLL"],
        "collective": ["none"] * 4 + ["ALL_REDUCE"],
        "group": ["none"] * 4 + ["world"],
        "stage": ["0"] * 5,
        "peer": ["none"] * 5,
        "device": ["cpu"] * 5,
        "dtype": ["float32"] * 5,
    }
    assert tuple(words) == CATEGORIES
    return AttributedGraph(
        name=name,
        categories=words,
        numbers={
            "flops": np.array(flops),
            "bytes": np.array(moved, dtype=float),
            "comm_bytes": np.array(sent),
            "duration": np.nan_to_num(np.array(flops), nan=1000.0) * ns_per_flop,
        },
        units={"flops": "flops", "bytes": "bytes", "comm_bytes": "bytes", "duration": "ns"},
        edge_index_2E=np.array(EDGES).T,
        edge_type_E=np.zeros(len(EDGES), dtype=np.int64),
        edge_type_names=EDGE_TYPES,
        conditions={"world_size": "1"} | ({} if label is None else {"label": label}),
    )


def schema_of_jobs(jobs: list[AttributedGraph], num_bins: int = 16) -> GraphSchema:
    """Return the schema of jobs that all count, equal ones too."""
    return GraphSchema.fit("trace", jobs, num_bins=num_bins, program_G=np.arange(len(jobs)))


def costed_jobs(widths: list[int]) -> list[AttributedGraph]:
    """Return a job for each width; their labels are seconds at a hundred FLOPs per ns."""
    jobs = []
    for i, width in enumerate(widths):
        plain = costed_job(width)
        label = float(np.nansum(plain.numbers["flops"])) * 1e-11
        jobs.append(costed_job(width, label=label, ns_per_flop=1.0 + 0.1 * (i % 5), name=f"j{i}"))
    return jobs
