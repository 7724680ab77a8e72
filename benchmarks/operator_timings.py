"""How far a calibration from timed operators is off on operators that were left out of it.

``python benchmarks/operator_timings.py OPERATORS.jsonl [--device NAME]``: one JSON object a line
with kind (mm, bmm, elementwise, sdpa, conv2d, softmax, layer_norm, embedding), precision (bf16,
fp32, tf32), the sizes of that kind and us. Prints the errors as ``--compute
measured:DEVICE,operators=FILE`` does, of products in TF32 by themselves.
"""

import argparse
import csv
import json
import tempfile
from pathlib import Path
from typing import Any

from layerdag.simulator.operator_timings import calibrate_operators, read_operators

Row = dict[str, Any]


def table_row(row: Row) -> Row:
    """Return a row of the table that ``read_operators`` reads."""
    item = 2 if row["precision"] == "bf16" else 4
    named, ops, count, sizes = KINDS[row["kind"]](row)
    dtype = "bfloat16" if item == 2 else "float"
    costs = {"num_ops": ops, "tensor_size": count * item, "us": row["us"]}
    return {"operator": f"aten::{named}", "dtype": dtype, **costs, **sizes}


def product(row: Row) -> tuple[str, int, int, Row]:
    """Return operator, operations, numbers moved and sizes of one or several products."""
    b, m, n, k = row.get("b", 1), row["m"], row["n"], row["k"]
    sizes = {"m": m, "n": n, "k": k, "batch": b}
    return "mm" if b == 1 else "bmm", 2 * b * m * n * k, b * (m * k + k * n + m * n), sizes


def attention(row: Row) -> tuple[str, int, int, Row]:
    """Return those of fused attention."""
    b, h, q, d = row["b"], row["h"], row["q"], row["d"]
    sizes = {"batch": b, "heads": h, "kv_heads": h, "sequence": q, "kv_sequence": q, "head_dim": d}
    return "_scaled_dot_product_flash_attention", 4 * b * h * q * q * d, 4 * b * h * q * d, sizes


def convolution(row: Row) -> tuple[str, int, int, Row]:
    """Return those of a convolution of square images and filters."""
    side = -(-row["x"] // row["stride"])
    m, n, k = row["b"] * side**2, row["o"], row["i"] * row["r"] ** 2
    moved = row["b"] * row["i"] * row["x"] ** 2 + m * n + n * k
    return "convolution", 2 * m * n * k, moved, {"m": m, "n": n, "k": k, "batch": 1}


def rows_of(name: str, ops: int) -> Any:
    """Return the rule of an operator on m rows of n numbers."""

    def rule(row: Row) -> tuple[str, int, int, Row]:
        m, n = row["m"], row["n"]
        return name, ops * m * n, 2 * m * n, {"m": m, "n": n}

    return rule


KINDS = {
    **dict.fromkeys(("mm", "bmm"), product),
    "sdpa": attention,
    "conv2d": convolution,
    "softmax": rows_of("_softmax", 5),
    "layer_norm": rows_of("native_layer_norm", 5),
    "embedding": rows_of("embedding", 1),
    "elementwise": lambda row: (row["op"], row["n"], 2 * row["n"], {}),
}


def main() -> None:
    """Judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", type=Path)
    parser.add_argument("--device", default="h100")
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.operators.read_text().splitlines()]
    for words in (("bf16", "fp32"), ("tf32",)):
        chosen = [table_row(row) for row in rows if row["precision"] in words]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "operators.csv"
            names = list(dict.fromkeys(name for row in chosen for name in row))
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, names, restval="")
                writer.writeheader()
                writer.writerows(chosen)
            found = calibrate_operators(read_operators(path), args.device, "tf32" in words)
        print(f"{', '.join(words)}: {found.line}")


if __name__ == "__main__":
    main()
