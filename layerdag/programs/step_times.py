"""A step as long as asked for: the batch with which the step of a program takes a given time.

The step is derived and simulated for each batch that is tried, so that the time is that of the
finished job. It grows with the batch, which makes the search a bisection.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from layerdag.errors import UsageError
from layerdag.simulator.run import simulate

if TYPE_CHECKING:
    from layerdag.programs.forward_program import Program

TOLERANCE = 0.1
"""How far a step may be from the time asked for, as a share of it."""

_NEAR = 0.01  # near enough to stop
_BATCH = "B0"
_LARGEST = 1 << 24
_GRAINS = (1, 2, 4, 8, 16, 32)


def batch_for_step_time(
    program: "Program", seconds: float, cluster: Any, compute: Any, plan: Mapping[str, Any]
) -> int:
    """Return the batch per rank with which a step takes a time; see ``Program.with_step_time``."""
    if not seconds > 0:
        raise UsageError(f"A step takes more than 0 s; {seconds} was asked for.")
    if _BATCH not in program.sizes:
        raise UsageError(f"{program.name} has no batch (B0) in its table of sizes.")
    grain = _grain(program)

    @cache
    def took(grains: int) -> float:
        step = program.resize(**{_BATCH: grain * grains}).step(**plan)
        return simulate(step.workload(), cluster, compute=compute).makespan_s

    low, high = 1, 1
    while took(high) < seconds:
        low, high = high, 4 * high
        if grain * high > _LARGEST:
            raise UsageError(
                f"{program.name}: a step takes {took(low):.3g} s with a batch of "
                f"{grain * low:,}; ask for less than {seconds:.3g} s, or make the program larger."
            )
    while high - low > 1 and min(abs(took(n) / seconds - 1) for n in (low, high)) > _NEAR:
        middle = (low + high) // 2
        low, high = (middle, high) if took(middle) < seconds else (low, middle)
    best = min((low, high), key=lambda grains: abs(took(grains) - seconds))
    if abs(took(best) / seconds - 1) > TOLERANCE:
        raise UsageError(
            f"{program.name}: a step takes {took(low):.3g} s with a batch of {grain * low:,} and "
            f"{took(high):.3g} s with {grain * high:,}, not {seconds:.3g} s; ask for one of these, "
            "or change the widths, the plan or the cluster."
        )
    return grain * best


def _grain(program: "Program") -> int:
    """Return the least number of which every multiple tried is a batch that the program takes."""
    for grain in (*_GRAINS, program.sizes[_BATCH]):
        if not any(program.resize(**{_BATCH: grain * n}).check() for n in (1, 3)):
            return grain
    return program.sizes[_BATCH]
