"""Graphs whose numbers follow from their conditions by known laws."""

import numpy as np

from layerdag.graph.attributed_graph import AttributedGraph

OPERATORS = ("mm", "norm", "c10d::all_reduce")


def lawful_graph(
    width: float, length: float, ranks: int, family: str = "gpt", split: str = "no"
) -> AttributedGraph:
    """Return a chain of a product, a norm and a sum.

    FLOPs of the product are ``2 length width^2 / ranks``, threefold in llama; the norm takes ``5
    length width``, over ranks where it is split; the message is what the norm makes.
    """
    times = 3.0 if family == "llama" else 1.0
    shared = ranks if split == "yes" else 1
    return AttributedGraph(
        name=f"{width}-{length}-{ranks}-{family}-{split}",
        categories={
            "op": [*OPERATORS],
            "type": ["COMP", "COMP", "COMM_COLL"],
            "group": ["none", "none", f"contiguous{ranks}"],
        },
        numbers={
            "flops": np.array(
                [times * 2 * length * width**2 / ranks, 5 * length * width / shared, np.nan]
            ),
            "comm_bytes": np.array([np.nan, np.nan, 2 * length * width]),
        },
        units={"flops": "flops", "comm_bytes": "bytes"},
        edge_index_2E=np.array([[0, 1], [1, 2]]),
        edge_type_E=np.array([0, 0]),
        conditions={
            "width": width,
            "length": length,
            "ranks": str(ranks),
            "tokens": width * length,
            "family": family,
            "split": split,
            "label": width,
        },
    )


def lawful_graphs(num: int = 120, seed: int = 0) -> list[AttributedGraph]:
    """Return graphs of random conditions."""
    rng = np.random.default_rng(seed)
    return [
        lawful_graph(
            float(rng.choice([256, 512, 1024])),
            float(rng.choice([64, 128, 256])),
            int(rng.choice([2, 4, 8])),
            str(rng.choice(["gpt", "llama", "qwen"])),
            str(rng.choice(["no", "yes"])),
        )
        for _ in range(num)
    ]
