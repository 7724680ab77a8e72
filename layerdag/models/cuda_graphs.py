"""Work on a GPU that is recorded once and repeated, each time as one launch."""

import threading
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

DEVICE_CALLS = threading.Lock()
"""Held while work is recorded: a call of CUDA by another thread, such as for pinned memory, spoils
a recording."""


def record_cuda_graph(
    work: Callable[[], T], generator: torch.Generator | None = None
) -> tuple[T, Callable[[], None]]:
    """Do work on a GPU once, and record it as a CUDA graph.

    Args:
        work: Of fixed shapes and addresses; the host may not wait in it.
        generator: Of its random numbers, if it draws any.

    Returns:
        Tensors that hold the result after every repetition, and what repeats the work.
    """
    # Libraries set themselves up in a first run, which must not be recorded.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    with DEVICE_CALLS, torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = work()
    return result, graph.replay
