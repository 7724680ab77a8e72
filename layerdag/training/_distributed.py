"""The processes of one training run under torchrun; a single process is a world of one."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class World:
    """This process among those of the run.

    Attributes:
        rank: Its number.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of ``values`` over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def average_gradients(self, parameters: Sequence[nn.Parameter], flags_F: Tensor) -> Tensor:
        """Replace each gradient by its mean over processes; return the sum of ``flags_F``.

        Everything travels in one message. A parameter without gradient counts as 0 on that
        process and stays without one where no process has any.
        """
        if self.size == 1:
            return flags_F
        with_gradient = [p for p in parameters if p.requires_grad]
        pieces = [p.grad if p.grad is not None else torch.zeros_like(p) for p in with_gradient]
        flat = torch.cat([piece.flatten().float() for piece in pieces] + [flags_F.float()])
        dist.all_reduce(flat)
        offset = 0
        for parameter in with_gradient:
            end = offset + parameter.numel()
            mean = flat[offset:end].view_as(parameter) / self.size
            parameter.grad = mean.to(parameter.dtype)
            offset = end
        return flat[offset:]

    def same_weights(self, model: nn.Module) -> None:
        """Give every process the weights of process 0."""
        if self.size > 1:
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, src=0)

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()


@contextlib.contextmanager
def joined_world(device: torch.device) -> Iterator[World]:
    """Join the processes that torchrun started, or be alone; leave at the end of the block.

    An exception in one of several processes ends that process at once with exit code 1, whereupon
    torchrun ends the others.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        already = dist.is_initialized()
        yield World(dist.get_rank(), dist.get_world_size()) if already else World()
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=10))
    world = World(dist.get_rank(), dist.get_world_size())
    try:
        yield world
    except Exception:
        _end_at_once(world)
    dist.destroy_process_group()


def _end_at_once(world: World) -> NoReturn:
    """Report the exception and end this process without waiting for anything.

    The others may wait in a collective for this process. To leave the NCCL group in good order is
    a collective too, here or when the interpreter ends, so that no rank would ever end.
    """
    sys.stderr.write(
        f"Process {world.rank} of {world.size} has failed for the reason below; all processes of "
        "the run end. Mend it and go on from the last save with resume=RUN_FOLDER.\n"
    )
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


def local_device(name: str) -> torch.device:
    """Return the device of this process: "auto" takes the GPU of its local rank where there is one.

    Under torchrun several processes of one machine get one GPU each.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device(name)
