"""The planted faults of benchmarks/faults, which is no part of the package, for tests."""

import sys
from pathlib import Path

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.kinds.job import JOB
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute
from layerdag.schema.schema import GraphSchema

# Last, so that no benchmark hides a module of the same name.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from faults import _declared, _graphs, _judged, _printed, _samples

declared, graphs, judged, printed, samples = _declared, _graphs, _judged, _printed, _samples

FAMILIES = ("cnn", "gnn", "gpt")
WORDS = tuple(f"op{place}" for place in range(24))
_VALUES = np.geomspace(1, 1000, 400)
SCHEMA = GraphSchema(
    JOB,
    (
        CategoryAttribute("op", WORDS),
        *(NumericAttribute.fit(name, "1", _VALUES) for name in ("flops", "bytes", "duration")),
    ),
    ("data",),
)
DURATION = 3


def job(rng: np.random.Generator, family: str = "gpt", blocks: int = 5) -> DAG:
    """Return blocks of one kind one after the other; kind, head and widths are the job's own.

    A block is a node that forks into operators, which join in one. Numbers follow the operator.
    """
    first = 8 * FAMILIES.index(family)
    inner = rng.integers(first, first + 8, 3 + rng.integers(3))
    ops, edges = [first + int(rng.integers(8))], []
    for _ in range(blocks):
        start = len(ops)
        ops += [first, *inner.tolist(), first + 1]
        middle = range(start + 1, len(ops) - 1)
        edges += [(start - 1, start), *((start, i) for i in middle)]
        edges += [(i, len(ops) - 1) for i in middle]
    return _costed(rng, np.array(ops), np.array(edges).T, family)


def _costed(
    rng: np.random.Generator, op_N: np.ndarray, edge_index_2E: np.ndarray, family: str
) -> DAG:
    scale = float(np.exp(rng.normal()))
    columns = [op_N]
    positions = [np.zeros(op_N.size, dtype=np.float32)]
    for place, power in enumerate((1.0, 0.5, 0.5), start=1):
        value_N = 5 * (1 + op_N) ** power * scale * np.exp(0.05 * rng.normal(size=op_N.size))
        attribute = SCHEMA.attributes[place]
        assert isinstance(attribute, NumericAttribute)
        code_N, position_N = attribute.encode(value_N)
        columns.append(code_N)
        positions.append(position_N)
    return DAG.build(
        torch.from_numpy(np.stack(columns, axis=1)),
        torch.from_numpy(edge_index_2E),
        u_NA=torch.from_numpy(np.stack(positions, axis=1)),
        conditions={"family": family, "label": scale * op_N.size},
    ).in_layer_order()


def jobs(rng: np.random.Generator, count: int) -> list[DAG]:
    """Return jobs of all families with four to eight blocks."""
    return [job(rng, FAMILIES[int(rng.integers(3))], int(rng.integers(4, 9))) for _ in range(count)]
