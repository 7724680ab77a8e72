from types import SimpleNamespace

from device_calls import DeviceCalls


def event(key: str, count: int, device: str = "CPU", us: float = 0.0, note: bool = False) -> object:
    return SimpleNamespace(
        key=key, count=count, device_type=SimpleNamespace(name=device),
        self_device_time_total=us, is_user_annotation=note,
    )  # fmt: skip


EVENTS = [
    event("aten::mm", 9),
    event("cudaLaunchKernel", 6),
    event("cudaLaunchKernelExC", 2),
    event("cuLaunchKernel", 1),
    event("cudaGraphLaunch", 1),
    event("cudaStreamSynchronize", 3),
    event("cudaEventSynchronize", 1),
    event("cudaDeviceSynchronize", 2),
    event("cudaMemcpyAsync", 4),
    event("Memcpy DtoH (Device -> Pageable)", 4, "CUDA", 8.0),
    event("Memset (Device)", 1, "CUDA", 1.0),
    event("sm90_gemm", 8, "CUDA", 3000.0),
    event("elementwise_kernel", 2, "CUDA", 1000.0),
    event("Optimizer.step#AdamW.step", 1, "CUDA", 500.0, True),
]


def test_launches_waits_copies_and_kernels_are_told_apart():
    found = DeviceCalls()
    found.add(EVENTS)
    assert found.per(2) == {
        "launches": 5.0,
        "stream_waits": 2.0,
        "device_kernels": 5.0,
        "copies": 2.5,
        "kernel_ms": 2.0,
    }


def test_what_a_shorter_run_takes_is_taken_off():
    long, short = DeviceCalls(), DeviceCalls()
    long.add(EVENTS)
    short.add(EVENTS[:8])
    found = long.per(1, short)
    assert (found["launches"], found["stream_waits"], found["kernel_ms"]) == (0.0, 0.0, 4.0)
    assert found["copies"] == 5.0
