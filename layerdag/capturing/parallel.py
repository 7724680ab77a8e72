"""Parallel plans on a fake process group: DTensor, FSDP, and the transformer modules they split."""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import cast, final

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._redistribute import _gen_transform_infos
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

from layerdag.capturing.scopes import unit_paths
from layerdag.errors import UsageError
from layerdag.plan import Plan
from layerdag.runtime.settings import did_you_mean
from layerdag.workloads.transformer.shapes import ModelShape


@final
class Attention(nn.Module):
    """Causal attention with grouped heads; works on as many heads as its projections give."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        qkv, out = shape.biases != "none", shape.biases in ("attention", "all")
        self.width, self.rotary = shape.head_width, not shape.positions
        self.q = nn.Linear(shape.hidden, shape.query_width, bias=qkv)
        self.k = nn.Linear(shape.hidden, shape.kv_width, bias=qkv)
        self.v = nn.Linear(shape.hidden, shape.kv_width, bias=qkv)
        self.o = nn.Linear(shape.query_width, shape.hidden, bias=out)
        self.q_norm = nn.RMSNorm(self.width) if shape.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(self.width) if shape.qk_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of (sequences, tokens, width)."""
        q, k, v = (self._heads(layer(x)) for layer in (self.q, self.k, self.v))
        q, k = self.q_norm(q), self.k_norm(k)
        if self.rotary:
            q, k = _rotated(q), _rotated(k)
        repeats = q.shape[1] // k.shape[1]
        if repeats > 1:
            k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return cast(Tensor, self.o(mixed.transpose(1, 2).flatten(2)))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.width)).transpose(1, 2)


def _rotated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angle = torch.ones(x.shape[-2], half, dtype=x.dtype, device=x.device)
    cos, sin = angle.cos(), angle.sin()
    low, high = x[..., :half], x[..., half:]
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


@final
class FeedForward(nn.Module):
    """Two linear layers, or three with a gate."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        bias = shape.biases == "all"
        self.gate = nn.Linear(shape.hidden, shape.feed_forward, bias=bias) if shape.gated else None
        self.up = nn.Linear(shape.hidden, shape.feed_forward, bias=bias)
        self.down = nn.Linear(shape.feed_forward, shape.hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        if self.gate is None:
            return cast(Tensor, self.down(functional.gelu(self.up(x))))
        return cast(Tensor, self.down(functional.silu(self.gate(x)) * self.up(x)))


@final
class Layer(nn.Module):
    """Attention and feed-forward, each after a norm and beside a residual."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm, self.attention = _norm(shape), Attention(shape)
        self.feed_forward_norm, self.feed_forward = _norm(shape), FeedForward(shape)

    def forward(self, x: Tensor) -> Tensor:
        """Return the residual stream after this layer."""
        x = x + self.attention(self.attention_norm(x))
        return cast(Tensor, x + self.feed_forward(self.feed_forward_norm(x)))


@final
class Embedding(nn.Module):
    """Token embedding, with a learned one of positions where the shape has it."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.hidden)
        self.position = nn.Embedding(shape.positions, shape.hidden) if shape.positions else None

    def forward(self, token: Tensor) -> Tensor:
        """Return the residual stream of tokens (sequences, tokens)."""
        x = self.token(token)
        if self.position is None:
            return cast(Tensor, x)
        return cast(Tensor, x + self.position(torch.arange(token.shape[1], device=token.device)))


@final
class Transformer(nn.Module):
    """A dense decoder-only transformer; returns logits, or the loss where targets are given.

    Dropout is left out: it would have no part in an inference step, and a small one in training.

    Args:
        shape: Its sizes.

    Raises:
        UsageError: If the shape has experts: which tokens they get depends on data.
    """

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        if shape.experts:
            raise UsageError(
                f"{shape.name}: is a mixture of experts, whose routing depends on data that a "
                "capture does not have; 'layerdag workload' makes its trace from formulas."
            )
        self.embedding = Embedding(shape)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = _norm(shape)
        self.output = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        if shape.tied:
            self.output.weight = self.embedding.token.weight

    def forward(self, token: Tensor, target: Tensor | None = None) -> Tensor:
        """Return logits (sequences, tokens, vocabulary), or the mean loss for ``target``."""
        x = self.embedding(token)
        for layer in self.layers:
            x = layer(x)
        logits = self.output(self.norm(x))
        if target is None:
            return cast(Tensor, logits)
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def _norm(shape: ModelShape) -> nn.Module:
    return nn.LayerNorm(shape.hidden) if shape.norm == "layer" else nn.RMSNorm(shape.hidden)


Ranks = tuple[int, ...]


@dataclass(frozen=True)
class FakeWorld:
    """Ranks as a mesh, the last dimension fastest.

    Attributes:
        degrees: Length of each dimension by its name.
        mesh: PyTorch's mesh with those dimensions that are longer than 1; None for one rank.
        rank: The rank that this process is.
        across: Groups across a dimension by their role, int64 (groups, members) each, such as the
            stages that hold the same parameter.
    """

    degrees: Mapping[str, int]
    mesh: DeviceMesh | None = field(default=None, repr=False)
    rank: int = 0
    across: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(np.prod(list(self.degrees.values()), dtype=np.int64))

    def along(self, *names: str) -> DeviceMesh | None:
        """Return the part of the mesh along those of the dimensions that are longer than 1."""
        found = tuple(name for name in names if self.degrees.get(name, 1) > 1)
        return self.mesh[found] if self.mesh is not None and found else None

    def groups(self) -> dict[Ranks, str]:
        """Return the role of each group of this rank, such as "data+tensor"."""
        found: dict[Ranks, str] = {}
        long = [name for name, length in self.degrees.items() if length > 1]
        for count in range(1, len(long) + 1):
            for names in combinations(long, count):
                role = "+".join(names)
                found.setdefault(self.own(role), role)
        for role in self.across:
            found.setdefault(self.own(role), role)
        found.pop((), None)
        return found

    def own(self, role: str) -> Ranks:
        """Return the group of a role that this rank is in, empty if it is in none."""
        member_GM = self.members(role)
        of_rank_GM = member_GM[(member_GM == self.rank).any(1)]
        return tuple(of_rank_GM[0].tolist()) if len(of_rank_GM) else ()

    def members(self, role: str) -> np.ndarray:
        """Return the ranks of all groups of a role, int64 (groups, members)."""
        if role in self.across:
            return self.across[role]
        rank_D = np.arange(self.size).reshape(tuple(self.degrees.values()))
        names, inside = list(self.degrees), role.split("+")
        axes = [at for at, name in enumerate(names) if name not in inside]
        axes += [at for at, name in enumerate(names) if name in inside]
        count = int(np.prod([self.degrees[name] for name in inside], dtype=np.int64))
        return rank_D.transpose(axes).reshape(-1, count)


@contextmanager
def fake_world(
    degrees: Mapping[str, int], rank: int = 0, across: Mapping[str, np.ndarray] | None = None
) -> Iterator[FakeWorld]:
    """Make this process a rank of a world that does not exist; it ends with the ``with`` block.

    Only the groups of this rank are made, so that a world of 32,768 ranks costs what one of 8
    costs.

    Args:
        degrees: Length of each dimension of the mesh.
        rank: The rank.
        across: Further groups, see ``FakeWorld``.

    Raises:
        UsageError: If torch.distributed is in use.
    """
    world = FakeWorld(dict(degrees), None, rank, dict(across or {}))
    if world.size == 1:
        yield world
        return
    if distributed.is_initialized():
        raise UsageError(
            "torch.distributed is in use in this process; capture before init_process_group(), "
            "after destroy_process_group(), or in a process of its own."
        )
    hook = sys.excepthook
    # It would say that splits move by all-gather on processors, as docs/how-to/capture.md does.
    told = logging.getLogger("torch.distributed.tensor._collective_utils")
    level = told.level
    told.setLevel(logging.ERROR)
    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world.size)
    try:
        yield replace(world, mesh=_mesh(world))
    finally:
        distributed.destroy_process_group()
        told.setLevel(level)
        sys.excepthook = hook  # PyTorch's would begin every traceback of this process with a rank
        _forget_meshes()


def _forget_meshes() -> None:
    # As torch.distributed.tensor.debug does it, which imports PyTorch's compiler.
    DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_clear()
    torch._C._clear_DTensor_sharding_propagator_cache()
    _gen_transform_infos.cache_clear()


def _mesh(world: FakeWorld) -> DeviceMesh:
    """Return the mesh of the dimensions that are longer than 1."""
    long = {name: length for name, length in world.degrees.items() if length > 1}
    groups = []
    for name in long:
        ranks = list(world.own(name))
        groups.append(distributed.new_group(ranks, use_local_synchronization=True))
    rank_D = torch.arange(world.size).view(tuple(long.values()))
    only = groups[0] if len(groups) == 1 else groups
    return DeviceMesh.from_group(only, "cpu", mesh=rank_D, mesh_dim_names=tuple(long))


def group_ranks() -> dict[str, Ranks]:
    """Return the ranks of each process group that there is, by PyTorch's name."""
    if not distributed.is_initialized():
        return {}
    known = distributed.distributed_c10d._world.pg_group_ranks
    return {group.group_name: tuple(sorted(ranks)) for group, ranks in known.items()}


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
        _split_parameters(model, plan, world)


def _split_tensors(
    model: nn.Module, mesh: DeviceMesh, plan: Plan, given: TensorPlan | None
) -> None:
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
    if not isinstance(given, Mapping):
        given(model, mesh)
        return
    styles = {name: _style(name, style) for name, style in given.items()}
    try:
        parallelize_module(model, mesh, styles)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        raise UsageError(f"the tensor plan does not fit the model: {_first(error)}") from error
    _require_even(model, plan.tensor)


def _require_even(model: nn.Module, ranks: int) -> None:
    for name, parameter in model.named_parameters():
        for placement in parameter.placements if isinstance(parameter, DTensor) else ():
            if isinstance(placement, Shard) and parameter.shape[placement.dim] % ranks:
                raise UsageError(
                    f"{name}: {parameter.shape[placement.dim]} rows or columns cannot be split "
                    f"evenly over {ranks} tensor ranks; choose numbers that divide."
                )


def _style(name: str, style: ParallelStyle | str) -> ParallelStyle:
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


def _split_parameters(model: nn.Module, plan: Plan, world: FakeWorld) -> None:
    """Share parameters over the fsdp ranks; with replicas in the second dimension of the mesh."""
    mesh = cast(DeviceMesh, world.along("data", "fsdp"))
    for unit in _units(model, plan):
        fully_shard(unit, mesh=mesh, reshard_after_forward=not plan.keep_gathered)
    fully_shard(model, mesh=mesh)  # what is left is needed first in the backward pass, and kept


def _units(model: nn.Module, plan: Plan) -> list[nn.Module]:
    """Return the modules that are gathered at once; the rest of the model is one more."""
    if plan.fsdp_unit == "module":
        owners = [m for m in model.modules() if list(m.parameters(recurse=False))]
        return [module for module in owners if module is not model]
    return [model.get_submodule(path) for path in unit_paths(model)]


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
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
