"""Operators of STAGE: rows of its tables, shardings, and collectives between them.

All weights of a layer may be one flat tensor, sharded over data parallel ranks: it is gathered
before the forward and once more before the backward pass; its gradient is that of all weights end
to end.

The tables at the end have the operators of each block, forward and backward, with the sharding that
each expects. The facts are those of STAGE's spreadsheets (module3, MIT licence) in a notation of
our own::

    name | operator | operand | operand | -> result | after others | gradient of weight

An operand is the name of a tensor, and its dimensions where they differ from those in which it was
made; a difference in sharding is a collective. ``-> dims @ reduced`` states a result that does not
follow from the operands; a degree among the reduced dimensions makes it a partial sum.

Operators: ``T dims`` comes from another block, ``W dims`` a weight, ``I`` nothing is computed,
``M letters`` einsum, ``A`` sum, ``E n`` elementwise, n operations for each element, ``E2 n`` the
same of two tensors, ``B axis factor`` broadcast or reduction, ``SLICE axis size``, ``R`` reshape,
``C n`` an operator of n operations (CUSTOM).

Symbols: B micro-batch, S sequence, D width, H heads, K key and value heads, F feed-forward width, V
vocabulary, X experts, R experts of a token; dp, tp, cp, ep the degrees. ``Q`` is the sequence
dimension of residual tensors: ``S/cp/tp`` with sequence parallelism, else ``S/cp``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import final

from layerdag.hardware.collectives import CollectiveType
from layerdag.workloads.stage.sizes import NOTHING, ONE, Dim, parse_dim, parse_dims, product

Dims = tuple[Dim, ...]


@final
@dataclass(frozen=True, eq=False)
class TensorSharding:
    """Dimensions of a tensor on one rank."""

    dims: Dims
    reduced: Dims = ()  # what was summed over: a degree among them leaves a partial sum

    @cached_property
    def elements(self) -> Dim:
        """Number of elements."""
        return product(self.dims)


@final
@dataclass(frozen=True, eq=False)
class OperatorForm:
    """One operator of a block; all copies of the block share it."""

    kind: str  # STAGE's name of the operator, "T" for a tensor from elsewhere
    operands: tuple[TensorSharding, ...]  # the sharding that it expects of them
    result: TensorSharding
    operations: Dim = NOTHING  # multiply and add count one

    @cached_property
    def linked(self) -> "OperatorForm":
        """The form of a tensor from elsewhere once its producer is known."""
        return identity(self.result)

    @cached_property
    def over_micro_batches(self) -> "OperatorForm":
        """The form of a gradient's sum over micro-batches."""
        return custom(self.result, self.result, self.result.elements)

    @cached_property
    def updated(self) -> "OperatorForm":
        """The form of a weight's update, which takes the gradient in the weight's own sharding."""
        return added(self.result)


@final
@dataclass(frozen=True)
class Row:
    """A tensor of a block; ``sources`` and ``after`` name others, whose data it needs or not."""

    name: str
    form: OperatorForm
    sources: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    weight: bool = False
    gradient_of: str = ""  # name of a weight

    def renamed(self, rename: Callable[[str], str]) -> "Row":
        """Return the row with every name changed."""
        return replace(
            self,
            name=rename(self.name),
            sources=tuple(map(rename, self.sources)),
            after=tuple(map(rename, self.after)),
            gradient_of=rename(self.gradient_of) if self.gradient_of else "",
        )

    def linked(self, source: str) -> "Row":
        """Return the row of a tensor from elsewhere with its producer."""
        if self.form.kind != "T":
            raise ValueError(f"{self.name} is made by {self.form.kind} and cannot be linked")
        return replace(self, form=self.form.linked, sources=(source,))


def placeholder(layout: TensorSharding) -> OperatorForm:
    """Return the form of a tensor from elsewhere."""
    return OperatorForm("T", (), layout)


def identity(layout: TensorSharding) -> OperatorForm:
    """Return the form that computes nothing and at most changes the sharding."""
    return OperatorForm("I", (layout,), layout)


def added(layout: TensorSharding, kind: str = "A") -> OperatorForm:
    """Return the form of the sum of two tensors."""
    return OperatorForm(kind, (layout, layout), layout, layout.elements)


def custom(operand: TensorSharding, result: TensorSharding, operations: Dim) -> OperatorForm:
    """Return the form of an operator with a cost of its own."""
    return OperatorForm("CUSTOM", (operand,), result, operations)


def read_table(text: str, meaning: Mapping[str, Dim]) -> list[Row]:
    """Return the rows of a table (the tables below), for what its names mean in a model."""
    rows: dict[str, Row] = {}
    for line in filter(str.strip, text.splitlines()):
        name, operator, *fields = (part.strip() for part in line.split("|"))
        rows[name] = _read_row(name, operator, fields, rows, meaning)
    return list(rows.values())


def _read_row(
    name: str,
    operator: str,
    fields: Sequence[str],
    above: Mapping[str, Row],
    meaning: Mapping[str, Dim],
) -> Row:
    def sharding(text: str) -> TensorSharding:
        dims, _, reduced = text.partition("@")
        return TensorSharding(parse_dims(dims, meaning), parse_dims(reduced, meaning))

    kind, _, rest = operator.partition(" ")
    if kind in ("T", "W"):
        return Row(name, placeholder(sharding(rest)), weight=kind == "W")
    sources: list[str] = []
    operands: list[TensorSharding] = []
    result, gradient_of = None, ""
    after: tuple[str, ...] = ()
    for part in fields:
        if part.startswith("->"):
            result = sharding(part.removeprefix("->"))
        elif part.startswith("after "):
            after = tuple(part.split()[1:])
        elif part.startswith("gradient of "):
            gradient_of = part.removeprefix("gradient of ")
        else:
            source, colon, dims = part.partition(":")
            sources.append(source)
            made = above[source].form.result
            operands.append(sharding(dims) if colon else TensorSharding(made.dims))
    form = _form(kind, rest, tuple(operands), result or operands[0], meaning)
    return Row(name, form, tuple(sources), after, gradient_of=gradient_of)


def _form(
    kind: str,
    rest: str,
    operands: tuple[TensorSharding, ...],
    result: TensorSharding,
    meaning: Mapping[str, Dim],
) -> OperatorForm:
    first = operands[0]
    if kind == "M":
        return einsum(rest, operands)
    if kind == "I":
        return identity(first)
    if kind in ("A", "E", "E2"):
        factor = Dim.number(int(rest)) if rest else ONE
        return OperatorForm(kind, operands, first, first.elements * factor)
    if kind == "R":
        return OperatorForm(kind, operands, result, result.elements)
    if kind == "C":
        return custom(first, result, parse_dim(rest, meaning))
    axis, size = int(rest.split()[0]), parse_dim(rest.split()[1], meaning)
    dims = list(first.dims)
    dims[axis] = dims[axis] * size if kind == "B" else size
    result = TensorSharding(tuple(dims), first.reduced)
    return OperatorForm(kind, operands, result, result.elements)


def einsum(letters: str, operands: tuple[TensorSharding, ...]) -> OperatorForm:
    """Return the form of a matrix product; one operation for a multiply-accumulate."""
    terms, _, made = letters.partition("->")
    left, right = terms.split(",")
    size = dict(zip(left, operands[0].dims, strict=True))
    size |= dict(zip(right, operands[1].dims, strict=True))
    reduced = tuple(size[letter] for letter in left if letter not in made)
    result = TensorSharding(tuple(size[letter] for letter in made), reduced)
    return OperatorForm("M", operands, result, result.elements * product(reduced))


DEGREES = ("dp", "tp", "cp", "ep")
"""Symbols of the degrees, the one whose ranks are nearest first."""


@final
class ShardingState(Enum):
    """The part of a tensor that each rank of a group has."""

    DUPLICATED = "all of it"
    PARTITIONED = "a part each"
    PARTIAL = "a partial sum each"


def states(
    layout: TensorSharding, degrees: Sequence[str]
) -> dict[str, tuple[ShardingState, Dim | None]]:
    """Return for each degree the state of a tensor, and the dimension that says so.

    That dimension is given as it were if the degree were the only one.
    """
    found: dict[str, tuple[ShardingState, Dim | None]] = dict.fromkeys(
        degrees, (ShardingState.DUPLICATED, None)
    )
    for dims, state in (
        (layout.reduced, ShardingState.PARTIAL),
        (layout.dims, ShardingState.PARTITIONED),
    ):
        for dim in reversed(dims):  # the first dimension that names a degree counts
            for degree in degrees:
                if degree in dim.symbols:
                    others = (other for other in DEGREES if other != degree)
                    found[degree] = (state, dim.without(others))
    return found


def collectives(
    made: TensorSharding, expected: TensorSharding, degrees: Sequence[str]
) -> list[tuple[str, CollectiveType]]:
    """Return the degrees along which ranks communicate, and how, in order of degrees.

    From all of it to a part each, ranks cut their part out themselves.
    """
    have, want = states(made, degrees), states(expected, degrees)
    found = ((degree, _collective(have[degree], want[degree])) for degree in degrees)
    return [(degree, kind) for degree, kind in found if kind is not None]


def _collective(
    have: tuple[ShardingState, Dim | None], want: tuple[ShardingState, Dim | None]
) -> CollectiveType | None:
    """Return the collective along one degree, None if none is needed."""
    if have[0] is ShardingState.PARTIAL:
        return {
            ShardingState.DUPLICATED: CollectiveType.ALL_REDUCE,
            ShardingState.PARTITIONED: CollectiveType.REDUCE_SCATTER,
            ShardingState.PARTIAL: None,
        }[want[0]]
    if want[0] is ShardingState.PARTIAL:
        raise ValueError("a partial sum is expected of a tensor that is none")
    if have[0] is ShardingState.PARTITIONED and want[0] is ShardingState.DUPLICATED:
        return CollectiveType.ALL_GATHER
    if have[0] is want[0] and have[1] != want[1]:
        return CollectiveType.ALL_TO_ALL
    return None


FLAT = "_sharded_weight"
FLAT_GRADIENT = "_sharded_grad"
_GATHERED, _AGAIN = "_assembled_weight", "_assembled_weight_backward"
_GRADIENTS = "_assembled_grad"


def with_flat_weights(block: dict[str, Row], sharded: bool) -> dict[str, Row]:
    """Return a layer whose weights are one flat tensor, maybe sharded over data parallel ranks."""
    weights = {row.name: row for row in block.values() if row.weight}
    gradients = {row.gradient_of: row.name for row in block.values() if row.gradient_of}
    total = sum((weight.form.result.elements for weight in weights.values()), NOTHING)
    whole = TensorSharding((total,))
    part = TensorSharding((total / Dim.symbol("dp"),)) if sharded else whole
    backward = {name: f"_{name}_backward" for name in weights}

    def taken_out(weight: Row, name: str, source: str) -> Row:
        return Row(name, custom(whole, weight.form.result, NOTHING), (source,))

    rows = []
    for row in block.values():
        sources = row.sources
        if row.name.rpartition(".")[2].startswith("d"):
            sources = tuple(backward.get(name, name) for name in sources)
        plain = replace(row, sources=sources, gradient_of="")
        rows.append(taken_out(row, row.name, _GATHERED) if row.weight else plain)
    first, *others = (gradients[name] for name in weights)
    made = block[first].form.result
    joined = custom(made, TensorSharding(whole.dims, made.reduced), NOTHING)
    rows += [
        Row(FLAT, placeholder(part), weight=True),
        Row(_GATHERED, identity(whole), (FLAT,)),
        Row(FLAT_GRADIENT, identity(part), (_GRADIENTS,), gradient_of=FLAT),
        Row(_GRADIENTS, joined, (first,), tuple(others)),
        *(taken_out(row, backward[row.name], _AGAIN) for row in weights.values()),
        Row(_AGAIN, identity(whole), (FLAT,)),
    ]
    return {row.name: row for row in rows}


NORM = """
x | T B/dp, Q, D
y | E 5 | x
dy | T B/dp, Q, D
dx | E 5 | dy
"""

RESIDUAL = """
x1 | T B/dp, Q, D
x2 | T B/dp, Q, D
y | A | x1 | x2
dy | T B/dp, Q, D
dx1 | I | dy
dx2 | I | dy
"""

ATTENTION = """
x | T B/dp, Q, D
wqkv | W D, D/H, (H+2*K)/tp
qkv | M bsm,mnh->bsnh | x: B/dp, S/cp, D | wqkv
q | SLICE 3 H/tp | qkv
k | SLICE 3 K/tp | qkv
v | SLICE 3 K/tp | qkv
attn | T B/dp, S/cp, D/H, H/tp
wo | W D/H, H/tp, D
o1 | M bsmh,mhn->bsn | attn | wo
o | I | o1: B/dp, Q, D
do | T B/dp, Q, D
do1 | I | do: B/dp, S/cp, D
dattn | M bsn,mhn->bsmh | do1 | wo
dwo | M bsn,bsmh->mhn | do1 | attn | gradient of wo
dv | T B/dp, S/cp, D/H, K/tp
dk | T B/dp, S/cp, D/H, K/tp
dq | T B/dp, S/cp, D/H, H/tp
dkv | SLICE 3 2*K/tp | dv | dk
dqkv | SLICE 3 (2*K+H)/tp | dkv | dq
dwqkv | M bsnh,bsm->mnh | dqkv | x: B/dp, S/cp, D | gradient of wqkv
dx1 | M bsnh,mnh->bsm | dqkv | wqkv
dx | I | dx1: B/dp, Q, D
"""

_KERNEL = """
q | T B/dp, S/cp, D/H, H/tp
k | T B/dp, S/cp, D/H, K/tp
v | T B/dp, S/cp, D/H, K/tp
k1 | I | k: B/dp, S, D/H, K/tp
v1 | I | v: B/dp, S, D/H, K/tp
qkv | C 3*B/dp*S/cp*D/H*H/tp | q | -> B/dp, S/cp, D/H, H/tp | after k1 v1
dqkv | T B/dp, S/cp, D/H, H/tp
dq | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S/cp, D/H, H/tp
"""

KERNEL = (
    _KERNEL
    + """
dk | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S, D/H, H/tp @ 1/cp
dv | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S, D/H, H/tp @ 1/cp
"""
)

GROUPED_KERNEL = (
    _KERNEL
    + """
dk1 | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S, D/H, H/tp @ 1/cp
dv1 | C 6*B/dp*S/cp*D/H*H/tp | dqkv | -> B/dp, S, D/H, H/tp @ 1/cp
dk | SLICE 3 K/tp | dk1: B/dp, S/cp, D/H, H/tp
dv | SLICE 3 K/tp | dv1: B/dp, S/cp, D/H, H/tp
"""
)

FEED_FORWARD = """
x0 | T B/dp, Q, D
wgate | W D, F/tp
wdown | W F/tp, D
x00 | I | x0: B/dp, S/cp, D
xgate | M bsm,mn->bsn | x00 | wgate
xdown1 | M bsm,mn->bsn | xgate | wdown
xdown | I | xdown1: B/dp, Q, F
dxdown | T B/dp, Q, D
dxdown2 | I | dxdown: B/dp, S/cp, D
dwdown | M bsn,bsm->mn | dxdown2 | xgate | gradient of wdown
dxgate | M bsn,mn->bsm | dxdown2 | wdown
x01 | I | x0: B/dp, S/cp, D
dwgate | M bsn,bsm->mn | dxgate | x01 | gradient of wgate
dx000 | M bsn,mn->bsm | dxgate | wgate
dx0 | I | dx000: B/dp, Q, D
"""

GATED_FEED_FORWARD = """
x0 | T B/dp, Q, D
wup | W D, F/tp
wgate | W D, F/tp
wdown | W F/tp, D
x00 | I | x0: B/dp, S/cp, D
xup | M bsm,mn->bsn | x00 | wup
xgate | M bsm,mn->bsn | x00 | wgate
xupgate | M bsm,bsm->bsm | xup | xgate
xdown1 | M bsm,mn->bsn | xupgate | wdown
xdown | I | xdown1: B/dp, Q, F
dxdown | T B/dp, Q, D
dxdown2 | I | dxdown: B/dp, S/cp, D
dwdown | M bsn,bsm->mn | dxdown2 | xupgate | gradient of wdown
dxupgate | M bsn,mn->bsm | dxdown2 | wdown
dxup | M bsm,bsm->bsm | dxupgate | xgate
dxgate | M bsm,bsm->bsm | dxupgate | xup
x01 | I | x0: B/dp, S/cp, D
dwup | M bsn,bsm->mn | dxup | x01 | gradient of wup
dwgate | M bsn,bsm->mn | dxgate | x01 | gradient of wgate
dx00 | M bsn,mn->bsm | dxup | wup
dx01 | M bsn,mn->bsm | dxgate | wgate
dx000 | A | dx00: B/dp, S/cp, D @ 1/tp | dx01: B/dp, S/cp, D @ 1/tp
dx0 | I | dx000: B/dp, Q, D
"""

EMBEDDING = """
x | T B/dp, Q, In
w | W In, Out
y | M bsm,mn->bsn | x | w
dy | T B/dp, Q, Out
dw | M bsn,bsm->mn | dy | x | gradient of w
dx | M bsn,mn->bsm | dy | w
"""

SPLIT_EMBEDDING = """
x | T B/dp, S/cp, In/tp
w | W In/tp, Out
y | M bsm,mn->bsn | x | w
dy | T B/dp, S/cp, Out
dw | M bsn,bsm->mn | dy | x | gradient of w
dx | M bsn,mn->bsm | dy | w
"""

LOSS = """
y | T B/dp, Q, D
loss | E 5 | y
dy | E 5 | loss
"""

ROUTER = """
x | T B/dp, S/cp/tp, D
wrouter | W D/ep, R
yrouter | M bsm,mn->bsn | x | wrouter: D, R
yrouter2 | R | yrouter | -> B/dp, S/cp*R/tp, 1
x1 | B 1 R | x: B/dp, S/cp/tp, D/ep
xrouted | I | x1: B/dp, S/cp*R/(tp*ep), D
yrouted | T B/dp, S/cp*R/(tp*ep), D
y1 | I | yrouted: B/dp, S/cp*R/tp, D/ep
yrouter3 | SLICE 2 D/ep | yrouter2
y2 | E2 1 | y1 | yrouter3
y | B 1 1/R | y2
dy | T B/dp, S/cp/tp, D/ep
dy2 | B 1 R | dy
dy1 | E2 1 | dy2 | yrouter3
dyrouter3 | E2 1 | dy2 | y1
dyrouter2 | SLICE 2 1 | dyrouter3
dyrouted | I | dy1: B/dp, S/cp*R/(tp*ep), D
dyrouter | R | dyrouter2 | -> B/dp, S/cp/tp, R
dwrouter | M bsn,bsm->mn | dyrouter | x: B/dp, S/cp/tp, D/ep | gradient of wrouter
dx01 | M bsn,mn->bsm | dyrouter | wrouter
dxrouted | T B/dp, S/cp*R/(tp*ep), D
dx1 | I | dxrouted: B/dp, S/cp*R/tp, D/ep
dx02 | B 1 1/R | dx1
dx | A | dx01 | dx02
"""

DISPATCH = """
x | T B/dp, S/cp*R/(tp*ep), D
x_expert | SLICE 1 S/cp*R/(X*tp*ep) | x
dx_expert | T B/dp, S/cp*R/(X*tp*ep), D
dx | SLICE 1 S/cp*R/(tp*ep) | dx_expert
y_expert | T B/dp, S/cp*R/(X*tp*ep), D
y | SLICE 1 S/cp*R/(tp*ep) | y_expert
dy | T B/dp, S/cp*R/(tp*ep), D
dy_expert | SLICE 1 S/cp*R/(X*tp*ep) | dy
"""
