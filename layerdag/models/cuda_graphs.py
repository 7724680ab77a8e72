"""Work on a GPU that is recorded once and repeated, each time as one launch."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")


def record_cuda_graph(
    work: Callable[[], T], generator: torch.Generator | None, device: torch.device
) -> tuple[T, Callable[[], None]]:
    """Do work on a GPU once, and record it as a CUDA graph.

    Shapes and addresses are fixed, the host may not wait in it, and no other thread may call CUDA.
    Returns tensors that hold the result after every repetition, and what repeats the work.
    """
    with torch.cuda.device(device):
        # Libraries set themselves up in a first run, which must not be recorded.
        stream = _stream(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        if generator is not None:
            graph.register_generator_state(generator)
        captured = torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local")
        with captured:
            result = work()
    return result, graph.replay


@cache  # libraries keep memory for each stream that they have seen
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
