"""Profiles of a few events, as torch.profiler would write them."""

import json
from pathlib import Path


def event(cat: str, name: str, ts: float, dur: float, **args: object) -> dict:
    """Return one event; ``tid`` names the thread, device events take stream from ``args``."""
    tid = args.pop("tid", 7)
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid,
            "args": args}  # fmt: skip


def launch(number: int, ts: float, dur: float = 2.0) -> dict:
    """Return the runtime call with correlation ``number``."""
    return event("cuda_runtime", "cudaLaunchKernel", ts, dur, correlation=number)


def kernel(number: int, ts: float, dur: float, name: str = "gemm<128>", **args: object) -> dict:
    """Return the kernel with correlation ``number`` on stream 7 of device 0."""
    return event("kernel", name, ts, dur, correlation=number, **{"device": 0, "stream": 7, **args})


def write_profile(path: Path, events: list[dict], **head: object) -> Path:
    """Write a profile and return its path."""
    path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": events}))
    return path
