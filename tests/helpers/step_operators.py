"""Operators of a captured step and of a real one, in a form that can be compared."""

from collections import Counter
from collections.abc import Callable

from layerdag.capturing.running import record
from layerdag.traces.trace import Trace

SCALARS = 16
"""Bytes of an operator on counters of steps: a profile takes the number 1 for one more tensor."""


def operators(trace: Trace) -> Counter[tuple[str, int]]:
    """Return operators with their bytes.

    A profile shows the scalar that some optimizers make in each step (``torch.tensor(1.0)``) as a
    detach; sums of gradients are in place in a real step only.
    """
    names = [name.removesuffix("_") for name in trace.names()]
    sizes = [size if size > SCALARS else 0 for size in trace.integers("tensor_size")[0].tolist()]
    return Counter(pair for pair in zip(names, sizes, strict=True) if pair != ("aten::detach", 0))


def edges(trace: Trace) -> Counter[tuple[str, str]]:
    """Return the names at both ends of each data flow."""
    names = [name.removesuffix("_") for name in trace.names()]
    return Counter(
        (names[parent], names[row])
        for row in range(trace.num_nodes)
        for parent in trace.data_deps.of(row).tolist()
    )


def profiled(step: Callable[[], object]) -> Trace:
    """Return the imported profile of a function's third run."""
    step()
    step()
    with record() as found:
        step()
    return found.imported().trace
