"""A captured step is the step that runs: compared with the profile of a real one."""

from collections import Counter

import pytest
import torch
from torch import nn

from layerdag.traces import Trace
from layerdag.traces.pytorch._capture import record
from layerdag.workloads.capture import Transformer, capture_model
from layerdag.workloads.symbolic import ModelShape

LLAMA = ModelShape("tiny", 1, 32, 4, 64, 96, 2, gated=True, norm="rms", biases="none")
GPT = ModelShape("tiny-gpt", 1, 32, 4, 128, 96, positions=32, tied=True)


def operators(trace: Trace) -> Counter[tuple[str, int, int]]:
    """Name, operations and bytes; sums of gradients are in place in a real run (add_) only."""
    names = [name.removesuffix("_") for name in trace.names()]
    flops, sizes = (trace.integers(name)[0].tolist() for name in ("num_ops", "tensor_size"))
    return Counter(zip(names, flops, sizes, strict=True))


@pytest.mark.parametrize("shape", [LLAMA, GPT], ids=["llama", "gpt"])
def test_operators_sizes_and_data_flow_equal_those_of_a_profiled_step(shape: ModelShape) -> None:
    model = Transformer(shape)
    tokens = torch.zeros(2, 16, dtype=torch.long)
    captured = capture_model(model, (tokens, tokens)).program
    measured = profiled(model, (tokens, tokens))
    assert operators(captured) == operators(measured)
    assert edges(captured) == edges(measured)


def profiled(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Trace:
    """Return the imported trace of a real second step."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        model(*inputs).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with record() as found:
        step()
    return found.imported().trace


def edges(trace: Trace) -> Counter[tuple[str, str]]:
    """Names at both ends of each true data flow."""
    names = [name.removesuffix("_") for name in trace.names()]
    return Counter(
        (names[parent], names[row])
        for row in range(trace.num_nodes)
        for parent in trace.data_deps.of(row).tolist()
    )
