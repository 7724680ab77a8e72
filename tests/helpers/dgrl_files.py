"""A small family of computational graphs in the format of the DGRL benchmark."""

import gzip
from pathlib import Path

SHAPE = "-1,8,8,{c},0"


def write_family(folder: Path) -> None:
    """Write 30 chains of three nodes with different channels; the last has no label."""
    nodes = []
    for b in range(30):
        channels = SHAPE.format(c=16 * (1 + b))
        nodes += [f"Conv2D,{SHAPE.format(c=3)},3,3,3,{b % 2},1,1,{channels}"] * 2
        nodes += [f"Relu,{channels},0,0,0,0,0,0,{channels}"]
    tables = {
        "num-node-list": ["3"] * 30,
        "num-edge-list": ["2"] * 30,
        "edge": ["0,1", "1,2"] * 30,
        "node-feat": nodes,
        "label-cortex": [f"{b}.5" for b in range(29)] + ['""'],
    }
    for name, rows in tables.items():
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
