"""What degrees were asked for, and whether a trace has them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod

from layerdag._runtime import did_you_mean
from layerdag.errors import UsageError
from layerdag.workloads.scaling._roles import Kind

_FLAGS: tuple[Kind, ...] = ("data", "tensor")


@dataclass(frozen=True)
class Degrees:
    """Degrees that were asked for, None where nothing was said.

    Attributes:
        ranks: All ranks.
        data: Data-parallel degree.
        tensor: Tensor-parallel degree.
        layers: Layers of the model, those of all pipeline stages together.
        layers_now: Layers that the trace has, where several numbers of blocks repeat.
    """

    ranks: int | None = None
    data: int | None = None
    tensor: int | None = None
    layers: int | None = None
    layers_now: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, int | None]) -> "Degrees":
        """Return what was asked for.

        Raises:
            UsageError: If a word is unknown, a number is below 1, or nothing is asked for.
        """
        known = [field.name for field in fields(cls)]
        for name, value in values.items():
            if name not in known:
                raise UsageError(
                    f"scale() has no setting '{name}'.{did_you_mean(name, known)} Known: "
                    f"{', '.join(known)}, plan, limits."
                )
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"{name} is {value!r}; it must be a whole number, at least 1.")
        wanted = [name for name in known if name != "layers_now"]
        if all(values.get(name) is None for name in wanted):
            raise UsageError(f"Say what should change: {', '.join(wanted)}.")
        return cls(**values)


@dataclass(frozen=True)
class Found:
    """The parallelism of a trace.

    Attributes:
        kinds: Of each axis, that of neighboring ranks first.
        sizes: Ranks along each axis.
        sharded: Whether weights or optimizer states are sharded along it.
    """

    kinds: tuple[Kind, ...]
    sizes: tuple[int, ...]
    sharded: tuple[bool, ...]

    def axis(self, kind: Kind) -> int | None:
        """Return the only axis of a kind, None if there is none."""
        axes = [axis for axis, found in enumerate(self.kinds) if found == kind]
        return axes[0] if len(axes) == 1 else None

    def __str__(self) -> str:
        """Return the axes in words."""
        pairs = zip(self.kinds, self.sizes, strict=True)
        return ", ".join(f"{kind} x {size}" for kind, size in pairs) or "one rank"


def new_sizes(asked: Degrees, found: Found, source: str) -> tuple[int, ...]:
    """Return the ranks along each axis after a change.

    Raises:
        UsageError: If the trace has no axis of this kind, or numbers do not fit together.
    """
    sizes = list(found.sizes)
    given = {kind: getattr(asked, kind) for kind in _FLAGS if getattr(asked, kind) is not None}
    for kind, degree in given.items():
        axis = found.axis(kind)
        if axis is None:
            if degree == 1 and kind not in found.kinds:
                continue
            raise UsageError(_no_axis(kind, found, source))
        sizes[axis] = degree
    if asked.ranks is None or prod(sizes) == asked.ranks:
        return tuple(sizes)
    axis = _free_axis(given, found, source)
    others = prod(sizes) // sizes[axis]
    if asked.ranks % others:
        raise UsageError(
            f"{source}: {asked.ranks} ranks are no multiple of the {others} ranks along the other "
            f"axes ({found}); ask for a multiple, or change another degree, too."
        )
    sizes[axis] = asked.ranks // others
    return tuple(sizes)


def _free_axis(given: dict[Kind, int], found: Found, source: str) -> int:
    """Return the axis that takes the ranks: data parallelism, or the only one that can change."""
    free = [axis for axis, kind in enumerate(found.kinds) if kind in _FLAGS and kind not in given]
    data = [axis for axis in free if found.kinds[axis] == "data"]
    if len(data) == 1:
        return data[0]
    if len(free) == 1:
        return free[0]
    raise UsageError(
        f"{source}: --ranks does not say which degree changes: found {found}. "
        + ("Give --data or --tensor." if free else _NONE_FREE)
    )


_NONE_FREE = (
    "None of these can grow by a rule; a trace that has data parallelism on two ranks can. "
    "'--plan data' states what the axis is where the trace does not tell."
)


def _no_axis(kind: Kind, found: Found, source: str) -> str:
    """Return the sentence for a degree that a trace does not have."""
    if kind in found.kinds:
        return (
            f"{source}: has several axes of {kind} parallelism ({found}); --{kind} does not say "
            "which one changes. Give --plan with the kind of each axis."
        )
    return (
        f"{source}: has no {kind} parallelism (found {found}), so that its trace does not tell "
        f"what {kind} ranks exchange; start from a trace of at least two {kind} ranks, or state "
        "with --plan what the axes are."
    )
