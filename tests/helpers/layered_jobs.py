"""Training steps of networks of equal layers: forward pass, backward pass, optimizer."""

import numpy as np

from layerdag.codec.folding import EDGE_TYPES, VOCABULARIES
from layerdag.graph.attributed_graph import AttributedGraph, size_conditions
from layerdag.graph.topology import longest_path_layers

_NONE = {
    "type": "COMP", "collective": "none", "group": "none", "stage": "0", "peer": "none",
    "device": "cpu", "dtype": "float32",
}  # fmt: skip


def layered_job(count: int, width: int = 8, **conditions: object) -> AttributedGraph:
    """Return the step of a network of ``count`` layers; the duration of each node is its number."""
    op, flops, edges = ["aten::embedding"], [1.0], []
    product, activation, last = [], [], 0
    for _ in range(count):
        product.append(len(op))
        activation.append(len(op) + 1)
        edges += [(last, product[-1], 0), (product[-1], activation[-1], 0)]
        op += ["aten::mm", "aten::relu"]
        flops += [2.0 * width, 1.0 * width]
        last = activation[-1]
    edges.append((last, len(op), 0))
    last, gradient = len(op), {}
    op.append("aten::mse_loss")
    flops.append(3.0)
    for layer in reversed(range(count)):
        first = len(op)
        edges += [(last, first, 0), (activation[layer], first, 0), (first, first + 1, 0)]
        edges.append((product[layer], first + 1, 0))
        op += ["aten::threshold_backward", "aten::mm"]
        flops += [1.0 * width, 4.0 * width]
        last = gradient[layer] = first + 1
    for layer in range(count):
        step = len(op)
        edges += [(gradient[layer], step, 0), *([(step - 1, step, 1)] if layer else [])]
        op += ["aten::add_", "aten::zero_"]
        flops += [1.0, 0.5]
        edges.append((step, step + 1, 1))
    table_E3 = np.array(sorted(set(edges)), dtype=np.int64)
    pairs_2E = table_E3[:, :2].T.copy()
    flops_N = np.array(flops)
    return AttributedGraph(
        name=f"layers{count}",
        categories={"op": op, **{name: [word] * len(op) for name, word in _NONE.items()}},
        numbers={
            "flops": flops_N,
            "bytes": 4 * flops_N,
            "comm_bytes": np.full(len(op), np.nan),
            "duration": np.arange(1.0, len(op) + 1),
        },
        edge_index_2E=pairs_2E,
        edge_type_E=table_E3[:, 2].copy(),
        edge_type_names=EDGE_TYPES,
        conditions={
            **conditions, **size_conditions(longest_path_layers(len(op), pairs_2E)),
        },
        open_vocabularies=("op",),
        vocabularies=VOCABULARIES,
    )  # fmt: skip
