"""What PyTorch's own tools leave of a step: host.json (execution trace), profile.json (Kineto)."""

import json
from pathlib import Path

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

Path("folder").mkdir(exist_ok=True)
model = torch.nn.Linear(64, 10)
observer = ExecutionTraceObserver().register_callback("host.json")
with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as profiler:
    model(torch.randn(32, 64)).square().mean().backward()
profiler.export_chrome_trace("profile.json")
for name in ("host", "profile"):
    Path(f"folder/{name}_rank0.json").write_bytes(Path(f"{name}.json").read_bytes())

# A profile with one kernel on a device, which no processor leaves.
launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
kernel = {"ph": "X", "cat": "kernel", "name": "relu_kernel", "pid": 0, "tid": 7}
events = [
    {**launch, "ts": 10, "dur": 5, "args": {"correlation": 1}},
    {**kernel, "ts": 20, "dur": 30, "args": {"correlation": 1, "stream": 7, "device": 0}},
]
gpu_profile = {"schemaVersion": 1, "traceEvents": events}
Path("gpu_profile.json").write_text(json.dumps(gpu_profile))
of_two = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2}}
Path("rank0.json").write_text(json.dumps({**of_two, **gpu_profile}))
