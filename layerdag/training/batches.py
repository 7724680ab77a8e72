"""Batches of training graphs, in a reproducible order, over several processes.

The order in which graphs are trained: deterministic, bucketed by size, random access by epoch.

A data set is one ``DAGBatch`` with all its graphs; a micro-batch is a selection from it. The
batches of an epoch are a pure function of the seed and the epoch's number: resuming needs two
integers.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from layerdag.dag.dag import DAGBatch
from layerdag.errors import ConfigError
from layerdag.runtime.rng import numpy_generator

# Sizes are blurred by this factor before sorting, so that batch mates change from epoch to epoch.
_BLUR = 1.5


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """A micro-batch by the numbers of its graphs, and the place in the data behind it."""

    graphs_G: Tensor
    noise_seed: int
    epoch: int  # epoch that the next one comes from
    position: int  # its position there

    @property
    def first(self) -> int:
        """The first of the graphs, which is in no other micro-batch."""
        return int(self.graphs_G[0])


@runtime_checkable
class BatchSource(Protocol):
    """What the training loop needs of its data."""

    def epoch_batches(self, epoch: int) -> Sequence[Tensor]:
        """Return the graph numbers of each micro-batch of an epoch, in order."""
        ...

    def load(self, graphs_G: Tensor) -> DAGBatch:
        """Return the micro-batch with these graphs."""
        ...


class BucketedSource:
    """Micro-batches of graphs of similar size, by number of graphs and of nodes.

    Raises:
        ConfigError: If there is no graph.
    """

    def __init__(self, data: DAGBatch, batch_graphs: int, batch_nodes: int, seed: int) -> None:
        if data.num_graphs == 0:
            raise ConfigError("The data set has no graph to train on; check its split.")
        self._data = data
        self._sizes_B = data.node_ptr.diff().cpu().numpy()
        self._limits = (batch_graphs, batch_nodes)
        self._seed = seed

    def epoch_batches(self, epoch: int) -> list[Tensor]:
        """Return the graph numbers of each micro-batch of ``epoch``; every graph occurs once."""
        rng = numpy_generator(self._seed, "order", epoch)
        blurred_B = self._sizes_B * _BLUR ** rng.random(self._sizes_B.size)
        batches = in_order(np.argsort(blurred_B, kind="stable"), self._sizes_B, *self._limits)
        return [batches[i] for i in rng.permutation(len(batches))]

    def load(self, graphs_G: Tensor) -> DAGBatch:
        """Return the micro-batch with these graphs."""
        return take_graphs(self._data, graphs_G)


class RepeatedBatches:
    """The micro-batches of the first epoch of another source, in another order in each epoch."""

    def __init__(self, source: BatchSource, seed: int) -> None:
        self._source, self._seed = source, seed
        self._batches = source.epoch_batches(0)

    def epoch_batches(self, epoch: int) -> Sequence[Tensor]:
        """Return the graph numbers of each micro-batch of an epoch, in order."""
        if epoch == 0:
            return self._batches
        rng = numpy_generator(self._seed, "order", epoch)
        return [self._batches[i] for i in rng.permutation(len(self._batches))]

    def load(self, graphs_G: Tensor) -> DAGBatch:
        """Return the micro-batch with these graphs."""
        return self._source.load(graphs_G)


def in_order(
    order_B: np.ndarray, sizes_B: np.ndarray, batch_graphs: int, batch_nodes: int
) -> list[Tensor]:
    """Cut the sequence ``order_B`` of graph numbers into micro-batches within both limits."""
    nodes_B = np.cumsum(sizes_B[order_B])
    batches, start = [], 0
    while start < order_B.size:
        before = nodes_B[start - 1] if start else 0
        fits = int(np.searchsorted(nodes_B, before + batch_nodes, side="right"))
        end = max(start + 1, min(start + batch_graphs, fits))
        batches.append(torch.from_numpy(order_B[start:end].astype(np.int64)))
        start = end
    return batches


def take_graphs(data: DAGBatch, graphs_G: Tensor) -> DAGBatch:
    """Return the batch of the graphs ``graphs_G``, in that order, without a loop over graphs."""
    graphs_G = graphs_G.to(data.node_ptr.device)
    node_ptr, rows_N = _ranges(data.node_ptr, graphs_G)
    edge_ptr, rows_E = _ranges(data.edge_ptr, graphs_G)
    shift_G = node_ptr[:-1] - data.node_ptr[graphs_G]
    shift_E = torch.repeat_interleave(shift_G, edge_ptr.diff(), output_size=rows_E.numel())
    return DAGBatch(
        # Columns in files may hold whole numbers of fewer bytes.
        x_NA=data.x_NA[rows_N].long(),
        u_NA=data.u_NA[rows_N],
        layer_N=data.layer_N[rows_N].long(),
        edge_index_2E=data.edge_index_2E[:, rows_E] + shift_E,
        edge_type_E=data.edge_type_E[rows_E].long(),
        node_ptr=node_ptr,
        edge_ptr=edge_ptr,
        numeric_BC=data.numeric_BC[graphs_G],
        category_BM=data.category_BM[graphs_G],
    )


def _ranges(ptr: Tensor, graphs_G: Tensor) -> tuple[Tensor, Tensor]:
    lengths_G = ptr.diff()[graphs_G]
    new_ptr = torch.cat([ptr.new_zeros(1), lengths_G.cumsum(0)])
    shift_G = ptr[graphs_G] - new_ptr[:-1]
    total = int(new_ptr[-1])
    rows = torch.repeat_interleave(shift_G, lengths_G, output_size=total)
    return new_ptr, rows + torch.arange(total, device=ptr.device)


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those of the run."""

    rank: int = 0
    size: int = 1  # how many there are

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
def joined_world(device: torch.device) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, or be alone; leave at the end of the block.

    An exception in one of several processes ends that process at once with exit code 1, whereupon
    torchrun ends the others.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        already = dist.is_initialized()
        yield ProcessGroup(dist.get_rank(), dist.get_world_size()) if already else ProcessGroup()
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=10))
    world = ProcessGroup(dist.get_rank(), dist.get_world_size())
    try:
        yield world
    except Exception:
        _end_at_once(world)
    dist.destroy_process_group()


def _end_at_once(world: ProcessGroup) -> NoReturn:
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


def local_device(name: torch.device | str) -> torch.device:
    """Return the device of this process: "auto" takes the GPU of its local rank where there is one.

    Under torchrun several processes of one machine get one GPU each.

    Raises:
        ConfigError: If the device is unknown or not there.
    """
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"There is no device '{name}'; use auto, cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda, but torch sees no GPU; use device=cpu.")
    if name == "cuda":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device
