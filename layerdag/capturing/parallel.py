"""Parallel plans on a fake process group: DTensor, FSDP, and the transformer modules they split."""

from collections.abc import Callable, Mapping
from typing import cast

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from layerdag.capturing.fake_world import FakeWorld
from layerdag.capturing.scopes import unit_paths
from layerdag.capturing.transformer import Transformer
from layerdag.errors import UsageError
from layerdag.plan import Plan
from layerdag.runtime.settings import did_you_mean

TensorPlan = Mapping[str, ParallelStyle | str] | Callable[[nn.Module, DeviceMesh], None]
"""Style of each split module by its path ("layers.*.up"): PyTorch's, "colwise" or "rowwise"; or a
function that splits a module over the tensor ranks."""


def parallelize(
    model: nn.Module, plan: Plan, world: FakeWorld, tensor_plan: TensorPlan | None
) -> None:
    """Split a model in place, outside of the fake mode.

    Raises:
        UsageError: If the model has no tensor plan but tensor ranks, or the plan does not fit it.
    """
    tensor = world.along("tensor")
    if tensor is not None:
        _split_tensors(model, tensor, plan, tensor_plan)
    if plan.fsdp > 1:
        mesh = cast(DeviceMesh, world.along("data", "fsdp"))
        if plan.fsdp_unit == "module":
            units = [m for m in model.modules() if m is not model and list(m.parameters(False))]
        else:
            units = [model.get_submodule(path) for path in unit_paths(model)]
        for unit in units:
            fully_shard(unit, mesh=mesh, reshard_after_forward=not plan.keep_gathered)
        fully_shard(model, mesh=mesh)  # what is left is needed first in the backward pass, and kept


def _split_tensors(
    model: nn.Module, mesh: DeviceMesh, plan: Plan, given: TensorPlan | None
) -> None:
    if given is not None and plan.sequence_parallel:
        raise UsageError(
            "sequence_parallel belongs to known models; with a tensor plan of your own, give norms "
            'the style "sequence" and the others PyTorch\'s layouts.'
        )
    if given is None and isinstance(model, Transformer):
        given = _sequence_plan() if plan.sequence_parallel else _tensor_plan()
    if given is None:
        raise UsageError(
            f"{type(model).__name__}: {plan.tensor} tensor ranks need to know which modules are "
            'split; give a tensor plan such as {"layers.*.up": "colwise", "layers.*.down": '
            '"rowwise"} (the third thing that the function of your file returns).'
        )
    if not isinstance(given, Mapping):
        given(model, mesh)
        return
    known = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel, "sequence": SequenceParallel}
    styles: dict[str, ParallelStyle] = {}
    for name, style in given.items():
        if not isinstance(style, ParallelStyle) and style not in known:
            raise UsageError(
                f"tensor plan: {name} has the style {style!r}.{did_you_mean(str(style), known)} "
                f"Known: {', '.join(known)}, and PyTorch's own."
            )
        styles[name] = style if isinstance(style, ParallelStyle) else known[style]()
    try:
        parallelize_module(model, mesh, styles)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"the tensor plan does not fit the model: {first}") from error
    for name, parameter in model.named_parameters():
        for placement in parameter.placements if isinstance(parameter, DTensor) else ():
            if isinstance(placement, Shard) and parameter.shape[placement.dim] % plan.tensor:
                raise UsageError(
                    f"{name}: {parameter.shape[placement.dim]} rows or columns cannot be split "
                    f"evenly over {plan.tensor} tensor ranks; choose numbers that divide."
                )


def _tensor_plan() -> dict[str, ParallelStyle]:
    """Return Megatron-LM's plan; embedding, norms and output layer are the same on all ranks."""
    plan: dict[str, ParallelStyle] = {
        f"layers.*.{name}": ColwiseParallel()
        for name in ("attention.q", "attention.k", "attention.v", "feed_forward.up")
    }
    plan["layers.*.feed_forward.gate"] = ColwiseParallel()
    plan["layers.*.attention.o"] = RowwiseParallel()
    plan["layers.*.feed_forward.down"] = RowwiseParallel()
    return plan


def _sequence_plan() -> dict[str, ParallelStyle]:
    """Return the plan with norms and residuals split along the sequence.

    The embedding's output is cut, each block gathers its input and scatters its output, the output
    layer gathers its input.
    """
    whole, cut = Replicate(), Shard(1)
    plan = _tensor_plan()
    plan["embedding"] = PrepareModuleOutput(output_layouts=whole, desired_output_layouts=cut)
    plan["norm"] = SequenceParallel()
    plan["output"] = PrepareModuleInput(input_layouts=cut, desired_input_layouts=whole,
                                        use_local_output=True)  # fmt: skip
    for block in ("attention", "feed_forward"):
        plan[f"layers.*.{block}_norm"] = SequenceParallel()
        plan[f"layers.*.{block}"] = PrepareModuleInput(
            input_layouts=cut, desired_input_layouts=whole, use_local_output=False
        )
    plan["layers.*.attention.o"] = RowwiseParallel(output_layouts=cut)
    plan["layers.*.feed_forward.down"] = RowwiseParallel(output_layouts=cut)
    return plan
