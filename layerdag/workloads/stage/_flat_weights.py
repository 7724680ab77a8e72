"""All weights of a layer as one flat tensor, which may be sharded over data parallel ranks.

It is gathered before the forward and once more before the backward pass; its gradient is that of
all weights end to end.
"""

from dataclasses import replace

from layerdag.workloads.stage._dims import NOTHING, Dim
from layerdag.workloads.stage._forms import Layout, Row, custom, identity, placeholder

FLAT = "_sharded_weight"
FLAT_GRADIENT = "_sharded_grad"
_GATHERED, _AGAIN = "_assembled_weight", "_assembled_weight_backward"
_GRADIENTS = "_assembled_grad"


def with_flat_weights(block: dict[str, Row], sharded: bool) -> dict[str, Row]:
    """Return a layer whose weights are parts of one flat tensor.

    Args:
        block: The layer.
        sharded: Whether the flat tensor is sharded over data parallel ranks.
    """
    weights = {row.name: row for row in block.values() if row.weight}
    gradients = {row.gradient_of: row.name for row in block.values() if row.gradient_of}
    total = sum((weight.form.result.elements for weight in weights.values()), NOTHING)
    whole = Layout((total,))
    part = Layout((total / Dim.symbol("dp"),)) if sharded else whole
    backward = {name: f"_{name}_backward" for name in weights}
    rows = [
        *(
            _taken_out(row, row.name, _GATHERED, whole) if row.weight else _reading(row, backward)
            for row in block.values()
        ),
        Row(FLAT, placeholder(part), weight=True),
        Row(_GATHERED, identity(whole), (FLAT,)),
        *_gathered_gradients([block[gradients[name]] for name in weights], whole, part),
        *(_taken_out(row, backward[row.name], _AGAIN, whole) for row in weights.values()),
        Row(_AGAIN, identity(whole), (FLAT,)),
    ]
    return {row.name: row for row in rows}


def _taken_out(weight: Row, name: str, source: str, whole: Layout) -> Row:
    """Return the row that takes a weight out of the flat tensor."""
    return Row(name, custom(whole, weight.form.result, NOTHING), (source,))


def _reading(row: Row, backward: dict[str, str]) -> Row:
    """Return an operator that reads weights as gathered in its pass."""
    row = replace(row, gradient_of="")
    if not row.name.rpartition(".")[2].startswith("d"):
        return row
    return replace(row, sources=tuple(backward.get(name, name) for name in row.sources))


def _gathered_gradients(gradients: list[Row], whole: Layout, part: Layout) -> tuple[Row, Row]:
    """Return the rows that join all gradients and bring them to the shards of the weights."""
    first = gradients[0].form.result
    after = tuple(row.name for row in gradients[1:])
    joined = Layout(whole.dims, first.reduced)
    return (
        Row(FLAT_GRADIENT, identity(part), (_GRADIENTS,), gradient_of=FLAT),
        Row(_GRADIENTS, custom(first, joined, NOTHING), (gradients[0].name,), after),
    )
