"""Captured steps: counts of Llama-3-8B under several plans, and a comparison with real profiles.

    python benchmarks/capture.py --out capture.json

Published counts (Flint, Llama-8B on 8 tensor ranks): 675 matrix products, 64 attention kernels, 224
all-reduces. The comparison profiles a small model in this process and captures the same step.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

PLANS: dict[str, dict[str, Any]] = {
    "TP8": {"tensor": 8},
    "TP8 inference": {"tensor": 8, "phase": "inference"},
    "TP8 sequence parallel": {"tensor": 8, "sequence_parallel": True},
    "FSDP8": {"fsdp": 8},
    "FSDP8 by module": {"fsdp": 8, "fsdp_unit": "module"},
    "FSDP8 by module, kept": {"fsdp": 8, "fsdp_unit": "module", "keep_gathered": True},
    "DP8": {"data": 8},
    "DP8 by parameter": {"data": 8, "bucket_bytes": 0},
    "TP4 FSDP4": {"tensor": 4, "fsdp": 4},
    "TP2 FSDP2 DP2": {"tensor": 2, "fsdp": 2, "data": 2},
}


def main() -> None:
    """Run every part in a process of its own and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(compared() if args.only == "profile" else captured(args.only)))
        return
    found = {name: _alone(name) for name in (*PLANS, "profile")}
    for name, figures in found.items():
        print(f"{name:<24} {json.dumps(figures)}", flush=True)
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


def _alone(name: str) -> dict[str, Any]:
    """Return the figures of one part, measured in a process of its own."""
    command = [sys.executable, __file__, "--only", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def captured(name: str) -> dict[str, Any]:
    """Capture Llama-3-8B under one plan."""
    start = time.perf_counter()
    from layerdag.capturing.step import capture_model

    figures = capture_model("llama3-8b", sequence=8192, **PLANS[name]).summary()
    return {
        "seconds": round(time.perf_counter() - start, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        **{key: figures[key] for key in ("nodes", "operators", "collectives", "matrix_flops")},
    }


def compared() -> dict[str, Any]:
    """Compare captured steps of small models with profiles of real ones."""
    import torch

    from layerdag.capturing.transformer import Transformer
    from layerdag.workloads.transformer.shapes import ModelShape

    gated: dict[str, Any] = {"gated": True, "norm": "rms", "biases": "none"}
    shapes = (
        ModelShape("llama", 4, 128, 8, 256, 500, 2, **gated),
        ModelShape("gpt", 4, 128, 8, 512, 500, positions=64, tied=True),
    )
    tokens = torch.zeros(2, 64, dtype=torch.long)
    return {shape.name: _difference(Transformer(shape), (tokens, tokens)) for shape in shapes}


def _difference(model: Any, inputs: tuple[Any, ...]) -> dict[str, Any]:
    """Return the operators of a real step, and those that differ in name, operations or bytes."""
    import tempfile

    import torch

    from layerdag.capturing.running import capture
    from layerdag.capturing.step import capture_model

    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        model(*inputs).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with tempfile.TemporaryDirectory() as folder:
        with capture(Path(folder, "real")) as found:
            step()
        real = _operators(found.imported().trace)
    made = _operators(capture_model(model, inputs).trace)
    return {"real": real.total(), "captured": made.total(), "differing": (real - made).total()}


def _operators(trace: Any) -> Counter[tuple[str, int, int]]:
    """Return name, operations and bytes of every operator; in place or not counts alike."""
    names = [name.removesuffix("_") for name in trace.names()]
    flops, sizes = (trace.integers(name)[0].tolist() for name in ("num_ops", "tensor_size"))
    return Counter(zip(names, flops, sizes, strict=True))


if __name__ == "__main__":
    main()
