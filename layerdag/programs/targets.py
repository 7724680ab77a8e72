"""Programs of a requested depth, width, number of parameters, FLOPs or step time.

Depth follows from repeating units or leaving some out, everything else from the table of sizes.
What is asked for grows with the sizes, which makes each search one of a monotone function; its
value is counted on the program, or on the derived step, that each size gives, never estimated.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, final

from layerdag.errors import UsageError
from layerdag.plan import read_recorded
from layerdag.programs.depth import repeatable_units
from layerdag.programs.forward_program import Program
from layerdag.programs.validity import runs
from layerdag.simulator.run import simulate
from layerdag.traces.trace import Workload

TOLERANCE = 0.1
"""How far a value may be from the one asked for before another program is drawn."""

_NEAR = 0.0005  # near enough to stop
_NEAR_STEP = 0.01  # of a step time, which takes a second to find out
_MAX_VALUE = 1 << 26
_GRAINS = (1, 2, 4, 8, 16, 32, 64)
_MAX_TRIALS = 24
_ENTRIES = {"width": "w0", "batch": "B0"}


@final
@dataclass(frozen=True)
class Targets:
    """Requested figures of a program and its step; None leaves one as it is.

    Attributes:
        depth: Number of units, such as blocks.
        width: First width of the table of sizes ("w0"), the hidden one of most models.
        batch: Samples of one rank ("B0").
        flops: Operations of products in a step of rank 0, forward and backward ("matrix_flops" of
            ``layerdag capture --json``).
        step_time: Makespan of the derived and simulated step, seconds.
        preset: Cluster of the step time, as ``layerdag.simulate`` takes it.
        compute: Times of operators of the step and of its traces, as ``layerdag.simulate`` takes
            them; None is "h100" where a step time is asked for, and the checkpoint's own elsewhere.
        plan: Settings of ``Program.step``, such as ``{"data": 8, "fsdp": 4}``.

    Raises:
        UsageError: If a number is not above 0, or the plan has an unknown setting.
        ConfigError: If a setting of the plan is out of bounds.
    """

    depth: int | None = None
    width: int | None = None
    batch: int | None = None
    parameters: float | None = None
    flops: float | None = None
    step_time: float | None = None
    preset: object = "small"
    compute: object | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, asked in self.asked().items():
            if not 0 < asked < math.inf:
                raise UsageError(f"'{name}' must be above 0, found {asked}.")
        read_recorded(self.plan)

    @property
    def operator_times(self) -> object | None:
        """The compute model; None leaves it to the checkpoint."""
        return "h100" if self.compute is None and self.step_time is not None else self.compute

    def asked(self) -> dict[str, float]:
        """Return the numbers that are asked for, by name, in the order in which they are met."""
        names = ("depth", "width", "batch", "parameters", "flops", "step_time")
        found = {name: getattr(self, name) for name in names}
        return {name: float(n) for name, n in found.items() if n is not None}

    def named(self) -> list[str]:
        """Return the names of all that is asked for, those of the plan included."""
        return [*self.asked(), *self.plan]

    def facts(self) -> dict[str, Any]:
        """Return what was asked for as JSON data."""
        return {
            "wanted": self.asked(),
            "plan": dict(self.plan),
            "preset": str(self.preset),
            "compute": None if self.operator_times is None else str(self.operator_times),
        }


@final
@dataclass(frozen=True)
class TargetResult:
    """A requested number, by its name in ``Targets``, and the one that a program has."""

    name: str
    asked: float
    reached: float  # NaN if the program has no such size

    @property
    def exists(self) -> bool:
        """Whether the program has such a size."""
        return not math.isnan(self.reached)

    @property
    def miss(self) -> float:
        """How far it is off, as a share of what was asked for."""
        return abs(self.reached / self.asked - 1) if self.exists else math.inf

    def sentence(self) -> str:
        """Return both numbers in words."""
        if not self.exists:
            return f"{self.name}: {self.asked:,.6g} asked for; the program has no such size"
        if self.reached == self.asked:
            return f"{self.name}: {self.reached:,.6g}"
        return (
            f"{self.name}: {self.reached:,.6g}, the nearest found to the {self.asked:,.6g} asked "
            f"for ({self.reached / self.asked - 1:+.2%})"
        )


@final
@dataclass(frozen=True)
class TargetedProgram:
    """A program, with the requested and the actual numbers."""

    program: Program
    reached: tuple[TargetResult, ...]

    @property
    def miss(self) -> float:
        """The largest miss of a number."""
        return max((each.miss for each in self.reached), default=0.0)

    def facts(self) -> dict[str, dict[str, float | None]]:
        """Return what was asked for and reached as JSON data; None where there is no such size."""
        return target_metadata(self.reached)


def target_metadata(reached: Sequence[TargetResult]) -> dict[str, dict[str, float | None]]:
    """Return what was asked for and reached as JSON data; None where there is no such size."""
    return {
        each.name: {"asked": each.asked, "reached": each.reached if each.exists else None}
        for each in reached
    }


def solve_targets(program: Program, targets: Targets, keep: Sequence[str] = ()) -> TargetedProgram:
    """Return a program with the sizes that come nearest to the targets.

    Raises:
        NodeError: If the program cannot run.
        UsageError: If its step cannot be derived with the plan.
    """
    search = _Search(targets, set(keep))
    for name, asked in targets.asked().items():
        program = search.toward(program, name, asked)
    return TargetedProgram(
        program,
        tuple(TargetResult(n, a, search.value(program, n)) for n, a in targets.asked().items()),
    )


def step_time_of(workload: Workload, targets: Targets) -> float:
    """Return the makespan of a simulated step, seconds, on the cluster of the targets."""
    cluster, compute = cast(Any, targets.preset), cast(Any, targets.operator_times)
    return simulate(workload, cluster, compute=compute).makespan_s


class _Search:
    def __init__(self, targets: Targets, keep: set[str]) -> None:
        self._targets, self._keep = targets, keep
        self._values: dict[tuple[str, int, tuple[tuple[str, int], ...]], float] = {}

    def value(self, program: Program, name: str) -> float:
        """Return what a program has of what a target asks for; NaN if it has no such size."""
        if name == "depth":
            return float(len(program.units))
        if name in _ENTRIES:
            return float(program.sizes.get(_ENTRIES[name], math.nan))
        if name == "parameters":
            return float(program.parameters())
        key = (name, len(program.nodes), tuple(program.sizes.items()))
        if key not in self._values:
            step = program.step(**self._targets.plan)
            self._values[key] = (
                float(step.summary()["matrix_flops"])
                if name == "flops"
                else step_time_of(step.workload(), self._targets)
            )
        return self._values[key]

    def toward(self, program: Program, name: str, asked: float) -> Program:
        """Return a program nearer to one target."""
        if name == "depth":
            repeatable, depth = len(repeatable_units(program)), round(asked)
            if not repeatable or depth == len(program.units):
                return program
            wanted = max(1, depth - (len(program.units) - repeatable))
            each, more = divmod(wanted, repeatable)
            return program.deepen([each + (at < more) for at in range(repeatable)])
        near = {"width": 0.0, "batch": 0.0, "step_time": _NEAR_STEP}.get(name, _NEAR)
        for entries in self._groups(program, name):
            if abs(self.value(program, name) / asked - 1) <= near:
                break
            found = self._resized(program, entries, name, asked, near)
            if abs(self.value(found, name) - asked) < abs(self.value(program, name) - asked):
                program = found
                if name in ("width", "batch", "flops"):
                    self._keep.update(entries)
        if name in _ENTRIES:
            self._keep.add(_ENTRIES[name])
        elif name == "parameters":  # what follows may change neither
            self._keep.update(entry for entry in program.sizes if entry[0] in "wr")
        return program

    def _groups(self, program: Program, name: str) -> Iterator[list[str]]:
        if name in _ENTRIES:
            entry = _ENTRIES[name]
            if entry in program.sizes and entry not in self._keep:
                yield [entry]
            return
        free = {
            role: [e for e in program.sizes if e[0] == role and e not in self._keep]
            for role in "Bwr"
        }
        if name != "parameters":
            yield from filter(None, (free["B"], free["w"]))
            return
        if len(free["w"]) > 1:
            yield free["w"]
        # Each alone hits closer than all together. Of embeddings, the largest are vocabularies.
        yield from ([entry] for entry in free["w"])
        yield from ([e] for e in sorted(free["r"], key=lambda e: -program.sizes[e]))

    def _resized(
        self, program: Program, entries: Sequence[str], name: str, asked: float, near: float
    ) -> Program:
        lead = max(entries, key=lambda entry: program.sizes[entry])
        grain = _grain(program, entries, lead)

        def of(count: int) -> Program:
            return _scaled(program, entries, lead, grain, count)

        def value(count: int) -> float | None:
            made = of(count)
            return self.value(made, name) if runs(made.check()) else None

        start = asked if name in _ENTRIES else program.sizes[lead]
        best = nearest(value, asked, max(1, round(start / grain)), _MAX_VALUE // grain, near)
        return program if best is None else of(best)


def nearest(
    value: Callable[[int], float | None], asked: float, start: int, most: int, near: float
) -> int | None:
    """Return the whole number at which a growing function is nearest to a value, None if nowhere.

    The function may return None. The search begins at ``start``, tries numbers from 1 to ``most``,
    and stops within a share ``near`` of the value, which is above 0.
    """
    found: dict[int, float] = {}
    low, high = 0, most + 1
    before: int | None = None
    at = min(start, most)
    for trial in range(_MAX_TRIALS):
        result = value(at)
        if result is None:  # of a size between two that run
            at += 1
            if at in found or not low < at < high:
                break
            continue
        found[at] = result
        if abs(result / asked - 1) <= near:
            break
        low, high = (at, high) if result < asked else (low, at)
        if high - low <= 1:
            break
        if before is None or found[before] == result:
            guess = at * _ratio(asked, result)
        else:  # exact where the function is a constant and a multiple
            guess = at + (asked - result) * (at - before) / (result - found[before])
        if trial % 4 == 3 and low in found and high in found:
            guess = (low + high) / 2
        before = at
        at = min(max(round(guess), low + 1, at // 64), high - 1, 64 * at)
    if not found:
        return None
    return min(found, key=lambda count: abs(math.log(_ratio(found[count], asked))))


def _ratio(a: float, b: float) -> float:
    return max(a, 1e-30) / max(b, 1e-30)


def _scaled(program: Program, entries: Sequence[str], lead: str, grain: int, count: int) -> Program:
    ratio = count * grain / program.sizes[lead]
    sizes = {e: max(1, round(program.sizes[e] * ratio / grain)) * grain for e in entries}
    return program.resize(**sizes)


def _grain(program: Program, entries: Sequence[str], lead: str) -> int:
    heads = [number for entry, number in program.sizes.items() if entry[0] == "h"]
    of_heads = sorted({factor * number for number in heads for factor in (1, 2, 4, 8)})
    for grain in (*_GRAINS, *of_heads):
        count = max(1, program.sizes[lead] // grain)
        pair = (_scaled(program, entries, lead, grain, n) for n in (count, count + 1))
        if all(runs(each.check()) for each in pair):
            return grain
    return program.sizes[lead]
