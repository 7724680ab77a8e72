"""A model split over the ranks of a world: DTensor plans, ``fully_shard``, replicas' gradients."""

from collections.abc import Mapping
from functools import partial
from typing import cast, final

import torch
from torch import Tensor, distributed, nn
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

from layerdag._runtime import did_you_mean
from layerdag.errors import UsageError
from layerdag.workloads.capture._settings import CapturePlan
from layerdag.workloads.capture._transformer import Transformer
from layerdag.workloads.capture._world import World

TensorPlan = Mapping[str, ParallelStyle | str]
"""Style of each split module by its path ("layers.*.up"): PyTorch's, "colwise" or "rowwise"."""


def parallelize(
    model: nn.Module, plan: CapturePlan, world: World, tensor_plan: TensorPlan | None
) -> None:
    """Split a model in place, outside of the fake mode.

    Raises:
        UsageError: If the model has no tensor plan but tensor ranks, or the plan does not fit it.
    """
    tensor = world.along("tensor")
    if tensor is not None:
        _split_tensors(model, tensor, plan, tensor_plan)
    if plan.fsdp > 1:
        _split_parameters(model, plan, world)


def _split_tensors(
    model: nn.Module, mesh: DeviceMesh, plan: CapturePlan, given: TensorPlan | None
) -> None:
    """Split matrices over the tensor ranks."""
    if given is not None and plan.sequence_parallel:
        raise UsageError(
            "sequence_parallel belongs to known models; with a tensor plan of your own, give norms "
            'the style "sequence" and the others PyTorch\'s layouts.'
        )
    if given is None and isinstance(model, Transformer):
        given = _sequence_plan(model) if plan.sequence_parallel else _tensor_plan()
    if given is None:
        raise UsageError(
            f"{type(model).__name__}: {plan.tensor} tensor ranks need to know which modules are "
            'split; give a tensor plan such as {"layers.*.up": "colwise", "layers.*.down": '
            '"rowwise"} (the third thing that the function of your file returns).'
        )
    styles = {name: _style(name, style) for name, style in given.items()}
    try:
        parallelize_module(model, mesh, styles)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        raise UsageError(f"the tensor plan does not fit the model: {_first(error)}") from error
    _require_even(model, plan.tensor)


def _require_even(model: nn.Module, ranks: int) -> None:
    """Refuse parameters of which ranks would hold different parts."""
    for name, parameter in model.named_parameters():
        for placement in parameter.placements if isinstance(parameter, DTensor) else ():
            if isinstance(placement, Shard) and parameter.shape[placement.dim] % ranks:
                raise UsageError(
                    f"{name}: {parameter.shape[placement.dim]} rows or columns cannot be split "
                    f"evenly over {ranks} tensor ranks; choose numbers that divide."
                )


def _style(name: str, style: ParallelStyle | str) -> ParallelStyle:
    """Return a style by its word."""
    styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel, "sequence": SequenceParallel}
    if isinstance(style, ParallelStyle):
        return style
    if style not in styles:
        raise UsageError(
            f"tensor plan: {name} has the style {style!r}.{did_you_mean(str(style), styles)} "
            f"Known: {', '.join(styles)}, and PyTorch's own."
        )
    return styles[style]()


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


def _sequence_plan(model: Transformer) -> dict[str, ParallelStyle]:
    """Return the plan with norms and residuals split along the sequence.

    The embedding's output is cut, each block gathers its input and scatters its output, the output
    layer gathers its input.
    """
    whole, cut = Replicate(), Shard(1)
    gather = partial(
        PrepareModuleInput, input_layouts=cut, desired_input_layouts=whole, use_local_output=False
    )
    plan = _tensor_plan()
    plan["embedding"] = PrepareModuleOutput(output_layouts=whole, desired_output_layouts=cut)
    plan["norm"] = SequenceParallel()
    plan["output"] = PrepareModuleInput(input_layouts=cut, desired_input_layouts=whole,
                                        use_local_output=True)  # fmt: skip
    for block in ("attention", "feed_forward"):
        plan[f"layers.*.{block}_norm"] = SequenceParallel()
        plan[f"layers.*.{block}"] = gather()
    plan["layers.*.attention.o"] = RowwiseParallel(output_layouts=cut)
    plan["layers.*.feed_forward.down"] = RowwiseParallel(output_layouts=cut)
    return plan


def _split_parameters(model: nn.Module, plan: CapturePlan, world: World) -> None:
    """Share parameters over the fsdp ranks; with replicas in the second dimension of the mesh."""
    mesh = cast(DeviceMesh, world.along("data", "fsdp"))
    for unit in _units(model, plan):
        fully_shard(unit, mesh=mesh, reshard_after_forward=not plan.keep_gathered)
    fully_shard(model, mesh=mesh)  # what is left is needed first in the backward pass, and kept


def _units(model: nn.Module, plan: CapturePlan) -> list[nn.Module]:
    """Return the modules that are gathered at once; the rest of the model is one more."""
    if plan.fsdp_unit == "module":
        owners = [m for m in model.modules() if list(m.parameters(recurse=False))]
        return [module for module in owners if module is not model]
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    inner = {id(deep) for held in lists for child in held for deep in child.modules()}
    return [child for held in lists if id(held) not in inner for child in held]


@final
class ReplicaGradients:
    """Averages gradients over the data ranks in buckets while the backward pass runs, as DDP does.

    DDP itself computes in C++ where fake tensors cannot follow. Buckets are filled in the reverse
    order of the parameters and sent when their last gradient is there.

    Args:
        model: Its parameters.
        mesh: The data dimension.
        bucket_bytes: Size at which a bucket is full; 0 for one parameter each.
    """

    def __init__(self, model: nn.Module, mesh: DeviceMesh, bucket_bytes: int) -> None:
        self._group, self._replicas = mesh.get_group(), mesh.size()
        self._missing: list[set[int]] = []
        self._buckets = _buckets(model, bucket_bytes)
        self._hooks = []
        for number, bucket in enumerate(self._buckets):
            self._missing.append({id(parameter) for parameter in bucket})
            for parameter in bucket:
                hook = partial(self._ready, number)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))

    def _ready(self, number: int, parameter: Tensor) -> None:
        """Take note of a gradient; send its bucket if it was the last one."""
        self._missing[number].discard(id(parameter))
        if not self._missing[number]:
            self._send(self._buckets[number])

    def finish(self) -> None:
        """Send the buckets of which some parameter got no gradient; let go of the model."""
        for bucket, missing in zip(self._buckets, self._missing, strict=True):
            if missing:
                self._send([p for p in bucket if p.grad is not None])
        for hook in self._hooks:
            hook.remove()

    def _send(self, bucket: list[nn.Parameter]) -> None:
        """Average the gradients of a bucket."""
        grads = [_local(parameter.grad) for parameter in bucket if parameter.grad is not None]
        if not grads:
            return
        with torch.no_grad():
            flat = torch.cat([grad.reshape(-1) for grad in grads]).div_(self._replicas)
            distributed.all_reduce(flat, group=self._group)
            for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
                grad.copy_(part.view(grad.shape))


def _buckets(model: nn.Module, limit: int) -> list[list[nn.Parameter]]:
    """Return the parameters in reverse order, cut where a bucket is full or the dtype changes."""
    found: list[list[nn.Parameter]] = []
    held = 0
    for parameter in reversed([p for p in model.parameters() if p.requires_grad]):
        size = _local(parameter).numel() * parameter.element_size()
        if not found or held >= limit or found[-1][0].dtype != parameter.dtype:
            found.append([])
            held = 0
        found[-1].append(parameter)
        held += size
    return found


def _local(tensor: Tensor) -> Tensor:
    """Return the part of this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _first(error: Exception) -> str:
    """Return the first line of an error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
