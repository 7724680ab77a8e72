"""Gradients averaged over replicas in buckets, as DDP does."""

from functools import partial
from typing import final

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor


@final
class ReplicaGradients:
    """Averages gradients over the data ranks in buckets while the backward pass runs, as DDP does.

    DDP itself computes in C++ where fake tensors cannot follow. Buckets are filled in the reverse
    order of the parameters and sent when their last gradient is there. A bucket is full at
    ``bucket_bytes``; with 0 it holds one parameter.
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
