"""All tensors of a step: layers, micro-batches, gradients, updates, each on its stage."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import final

from layerdag.workloads.stage._blocks import Block, Blocks
from layerdag.workloads.stage._flags import StageFlags
from layerdag.workloads.stage._forms import Form, Row, custom


@final
@dataclass(eq=False)
class Tensor:
    """A tensor of the step.

    Attributes:
        name: As STAGE names it.
        form: Its operator; copies share it.
        stage: Pipeline stage that makes it.
        sources: Its operands.
        after: Tensors that must be there, too.
    """

    name: str
    form: Form
    stage: int
    sources: tuple["Tensor", ...] = ()
    after: tuple["Tensor", ...] = field(default=())


_Placed = list[tuple[Row, int]]
"""Rows with their stages."""


def tensors_of_step(flags: StageFlags) -> list[Tensor]:
    """Return all tensors of a step, in STAGE's order.

    Those of each micro-batch come first, then gradients summed over micro-batches, then weights
    and their updates.
    """
    rows = _rows_of_model(flags)
    weights = {row.name: Tensor(f"{row.name}@0", row.form, s) for row, s in rows if row.weight}
    gradients: dict[str, list[Tensor]] = {}
    found: list[Tensor] = []
    for number in range(flags.micro_batches):
        made = _micro_batch(rows, weights, f"mb{number}.")
        found += (made[row.name] for row, _ in rows if not row.weight)
        for row, _ in rows:
            if row.gradient_of:
                gradients.setdefault(row.gradient_of, []).append(made[row.name])
    summed = {name: _summed(parts) for name, parts in gradients.items()}
    updates = [_updated(weight, summed[name]) for name, weight in weights.items()]
    return [*found, *summed.values(), *weights.values(), *updates]


def _rows_of_model(flags: StageFlags) -> _Placed:
    """Return the rows of a micro-batch of the whole model."""
    blocks, last = Blocks.of(flags), flags.num_stacks - 1
    placed: _Placed = []
    for layer, stage in enumerate(flags.stage_of_layer):
        links = {
            "input_norm.x": f"transformer.{layer - 1}.ffn_res.y" if layer else "in_emb.y",
            "ffn_res.dy": (
                f"transformer.{layer + 1}.input_norm.dx" if layer < last else "out_emb.dx"
            ),
        }
        placed += _copied(blocks.layer, f"transformer.{layer}.", links, stage)
    end = flags.stage_of_output
    first, final_ = "transformer.0.input_norm.dx", f"transformer.{last}.ffn_res.y"
    placed += _copied(blocks.embedding, "in_emb.", {"dy": first}, 0)
    placed += _copied(blocks.output, "out_emb.", {"x": final_, "dy": "loss.dy"}, end)
    placed += _copied(blocks.loss, "loss.", {"y": "out_emb.y"}, end)
    return placed


def _copied(block: Block, prefix: str, links: dict[str, str], stage: int) -> _Placed:
    """Return a block's rows under a prefix, linked to rows of other blocks."""
    copied = ((name, row.renamed(lambda inner: prefix + inner)) for name, row in block.items())
    return [(row.linked(links[name]) if name in links else row, stage) for name, row in copied]


def _micro_batch(rows: _Placed, weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors of a micro-batch by name without prefix; weights are shared."""
    made = dict(weights)
    for row, stage in rows:
        if not row.weight:
            made[row.name] = Tensor(f"{prefix}{row.name}@0", row.form, stage)
    for row, _ in rows:
        tensor = made[row.name]
        tensor.sources = tuple(made[name] for name in row.sources)
        tensor.after = tuple(made[name] for name in row.after)
    return made


def _summed(parts: list[Tensor]) -> Tensor:
    """Return the sum of the gradients of all micro-batches."""
    first = parts[0]
    name = first.name.partition(".")[2]
    return Tensor(name, _sum_form(first.form), first.stage, (first,), tuple(parts[1:]))


def _updated(weight: Tensor, gradient: Tensor) -> Tensor:
    """Return the weight after the step; it takes the gradient in its own sharding."""
    name = f"{weight.name.removesuffix('@0')}@1"
    return Tensor(name, _update_form(weight.form), weight.stage, (weight, gradient))


@lru_cache(maxsize=64)
def _sum_form(gradient: Form) -> Form:
    layout = gradient.result
    return custom(layout, layout, layout.elements)


@lru_cache(maxsize=64)
def _update_form(weight: Form) -> Form:
    layout = weight.result
    return Form("A", (layout, layout), layout, layout.elements)
