"""Which operators stand around the call that launches a kernel, and which thread waits for what."""

from collections.abc import Sequence
from dataclasses import dataclass

from layerdag.traces.pytorch.device._kineto import EXTERNAL, Event, Profile
from layerdag.traces.pytorch.operators import is_composite


@dataclass(frozen=True, slots=True)
class Launch:
    """A runtime call with what it starts and where it stands.

    Attributes:
        call: The call.
        kernels: Positions in ``Profile.kernels`` of what it starts (several for a graph launch).
        operators: The operators around it, outermost first.
    """

    call: Event
    kernels: tuple[int, ...]
    operators: tuple[Event, ...]

    def operator(self) -> Event | None:
        """Return the outermost operator with a kernel of its own, as the data-flow import does."""
        for operator in self.operators:
            if _has_kernel(operator.name):
                return operator
        return self.operators[-1] if self.operators else None


_WRAPPERS = ("autograd::", "torch::autograd", "torch::", "profiler::")
_WAITS = ("Synchronize",)


def _has_kernel(name: str) -> bool:
    """Return whether an operator is neither a scope nor composite."""
    return "::" in name and not name.startswith(_WRAPPERS) and not is_composite(name)


def is_wait(call: Event) -> bool:
    """Return whether a call returns only when the device has caught up."""
    return any(word in call.name for word in _WAITS)


def find_launches(profile: Profile) -> list[Launch]:
    """Return the calls that start device work or wait for it, by start.

    A call and its kernel share a correlation id. The operators around a call are those of its
    thread that are open when it starts; where the profile numbers the threads of calls otherwise,
    the operator is found by "External id".
    """
    started: dict[int, list[int]] = {}
    for at, kernel in enumerate(profile.kernels):
        started.setdefault(kernel.correlation, []).append(at)
    wanted = [call for call in profile.calls if call.correlation in started or is_wait(call)]
    around = _enclosing(profile.operators, wanted)
    by_external = {op.args[EXTERNAL]: op for op in profile.operators if EXTERNAL in op.args}
    launches = []
    for call, operators in zip(wanted, around, strict=True):
        kernels = tuple(started.get(call.correlation, ())) if call.correlation else ()
        if not operators and kernels:
            hint = profile.kernels[kernels[0]].args.get(EXTERNAL)
            operators = (by_external[hint],) if hint in by_external else ()
        launches.append(Launch(call, kernels, operators))
    return launches


def _enclosing(operators: Sequence[Event], calls: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Return the open operators of each call's thread, outermost first; both come by start."""
    open_of: dict[tuple[object, ...], list[Event]] = {}
    found = []
    at = 0
    for call in calls:
        while at < len(operators) and operators[at].start <= call.start:
            stack = open_of.setdefault(operators[at].lane, [])
            while stack and stack[-1].end <= operators[at].start:
                stack.pop()
            stack.append(operators[at])
            at += 1
        stack = open_of.get(call.lane, [])
        while stack and stack[-1].end <= call.start:
            stack.pop()
        found.append(tuple(stack))
    return found
