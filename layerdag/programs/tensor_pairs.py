"""Tensor parallelism of programs: pairs of linear layers, found by data flow.

As ``ColwiseParallel`` and ``RowwiseParallel`` split a module: layers whose results meet in one
later layer, through operators that work on each feature or head alone, are split by columns, the
later one by rows (Shoeybi et al. 2019). Tensors between them have global shapes and are distributed
by DTensor, so that sizes and heads of the program stay as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import register_sharding
from torch.utils._python_dispatch import TorchDispatchMode

from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.capturing.fake_world import fake_world
from layerdag.errors import UsageError
from layerdag.hardware.collectives import COMMUNICATION_OPERATORS
from layerdag.programs.execution import quiet, run, run_node, tensors_of
from layerdag.programs.module import ProgramModule
from layerdag.programs.nodes import ForwardGraph, Leaf

LINEAR = "aten.linear.default"
_RESHARDED = "_dtensor::shard_dim_alltoall"
"""An exchange of DTensor's own, where the device has one."""


@final
@dataclass(frozen=True)
class Pair:
    """Linear layers of which each rank holds a part."""

    columns: tuple[int, ...]  # nodes that are split by columns
    between: tuple[int, ...]  # nodes whose results are split
    row: int  # the node that is split by rows, and whose result is summed over the ranks


def split_pairs(
    programs: Sequence[ForwardGraph], ranks: int, bf16: bool = False
) -> list["SharedRun"]:
    """Return how tensor ranks share the pairs of a program, or of the stages of one.

    Raises:
        NodeError: If a node cannot run.
        UsageError: If there is no pair in any; says why.
    """
    found, faults = [], list[str]()
    for program in programs:
        pairs, more = _pairs_and_faults(program, ranks, bf16)
        found.append(pairs)
        faults += more
    if not any(found):
        why = faults[0] if faults else "no linear layer's result leads to one other linear layer"
        raise UsageError(
            f"{programs[0].name}: there is no pair of linear layers that {ranks} tensor ranks can "
            f"share ({why}); leave tensor out, or choose numbers that divide."
        )
    return [SharedRun(pairs) for pairs in found]


def _pairs_and_faults(
    program: ForwardGraph, ranks: int, bf16: bool
) -> tuple[list[Pair], list[str]]:
    _shard_heads()
    found, faults = [], []
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=bf16)
    with quiet(), fake_world({"tensor": ranks}) as world:
        mesh = world.along("tensor")
        assert mesh is not None
        with RememberingFakeMode(), torch.no_grad(), autocast:
            results = list(run(program))
            for pair in _pairs(program):
                fault = _fault(program, pair, results, mesh)
                if fault is None:
                    found.append(pair)
                else:
                    faults.append(fault)
    return found, faults


def _pairs(program: ForwardGraph) -> Iterator[Pair]:
    readers: list[set[int]] = [set() for _ in program.nodes]
    for at, node in enumerate(program.nodes):
        for i in node.inputs:
            readers[i].add(at)
    for at in program.outputs:
        readers[at].add(len(program.nodes))
    taken: set[int] = set()
    for row in range(len(program.nodes)):
        if not _is_linear(program, row):
            continue
        columns, between = _before(program, row)
        inside = {*columns, *between}
        closed = all(readers[at] <= {*inside, row} for at in inside)
        once = program.nodes[row].inputs and not taken & {*columns, row}
        units = {program.unit_around(program.nodes[at].module) for at in (*columns, row)}
        if columns and closed and once and len(units) == 1:
            taken |= {*columns, row}
            yield Pair(tuple(sorted(columns)), tuple(sorted(between)), row)


def _is_linear(program: ForwardGraph, at: int) -> bool:
    node = program.nodes[at]
    own = [leaf for leaf in node.leaves if leaf.kind == "parameter" and leaf.trained]
    return node.operator == LINEAR and len(node.inputs) == 1 and own == list(node.leaves) != []


def _before(program: ForwardGraph, row: int) -> tuple[set[int], set[int]]:
    columns: set[int] = set()
    seen: set[int] = set()
    todo = list(program.nodes[row].inputs)
    while todo:
        at = todo.pop()
        if at in seen or at in columns:
            continue
        if _is_linear(program, at):
            columns.add(at)
        else:
            seen.add(at)
            todo += program.nodes[at].inputs
    between: set[int] = set()
    for at in sorted(seen):
        if any(i in columns or i in between for i in program.nodes[at].inputs):
            between.add(at)
    return columns, between


def _fault(
    program: ForwardGraph, pair: Pair, results: Sequence[Any], mesh: DeviceMesh
) -> str | None:
    """Return why ranks cannot share a pair, None if they can: its nodes are run, shared out."""
    at = pair.columns[0]
    made = {i: result for i, result in enumerate(results) if i not in pair.between}
    try:
        with _Messages() as messages:
            for at in (*pair.columns, *pair.between, pair.row):
                node = program.nodes[at]

                def make(leaf: Leaf, shape: tuple[int, ...], at: int = at) -> Tensor:
                    whole = torch.empty(shape, dtype=getattr(torch, leaf.dtype))
                    return _shared(whole, _placement(pair, at, len(shape)), mesh)

                inputs = [_given(made[i], mesh) for i in node.inputs]
                made[at] = run_node(node, inputs, program.sizes, make)
                parts = tensors_of(made[at])
                if at != pair.row and not all(_is_split(part, mesh.size()) for part in parts):
                    return f"the result of {node.operator}{_place(program, at)} is not split evenly"
        if messages.sent:
            return f"what is between needs the parts of other ranks{_place(program, pair.row)}"
    except Exception:  # DTensor's refusals are of many classes, and speak of meshes
        return f"{program.nodes[at].operator}{_place(program, at)} does not work on such parts"
    return None


class _Messages(TorchDispatchMode):
    """Notes whether ranks send anything, without the compiler that ``CommDebugMode`` needs."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it dispatches again, on the part of this rank
        name = func._schema.name
        self.sent |= name in COMMUNICATION_OPERATORS or name == _RESHARDED
        return func(*args, **(kwargs or {}))


def _place(program: ForwardGraph, at: int) -> str:
    module = program.nodes[at].module
    return f" of module {module}" if module else ""


def _is_split(tensor: Tensor, ranks: int) -> bool:
    place = tensor.placements[0] if isinstance(tensor, DTensor) else None
    return isinstance(place, Shard) and tensor.shape[place.dim] % ranks == 0


def _placement(pair: Pair, at: int, dims: int) -> Placement:
    if at in pair.columns:
        return Shard(0)
    return Shard(1) if at == pair.row and dims == 2 else Replicate()


def _shared(whole: Tensor, place: Placement, mesh: DeviceMesh) -> Tensor:
    return distribute_tensor(whole, mesh, [place], src_data_rank=None)


def _given(value: Any, mesh: DeviceMesh) -> Any:
    if isinstance(value, Tensor) and not isinstance(value, DTensor):
        return DTensor.from_local(value, mesh, [Replicate()], run_check=False)
    return value


@final
class SharedRun:
    """Shares the pairs of a module out and runs their nodes; a ``TensorPlan``."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = tuple(pairs)
        self._pair_of = {
            at: pair for pair in pairs for at in (*pair.columns, *pair.between, pair.row)
        }
        self._mesh: DeviceMesh | None = None

    def __call__(self, model: nn.Module, mesh: DeviceMesh) -> None:
        """Replace the parameters of a module by the parts that this rank holds."""
        assert isinstance(model, ProgramModule)
        self._mesh = mesh
        for at, pair in self._pair_of.items():
            for owner, name, parameter in model.parameters_of(at):
                place = _placement(pair, at, parameter.ndim)
                held = nn.Parameter(_shared(parameter, place, mesh), parameter.requires_grad)
                owner.register_parameter(name, held)
        model.shared = self

    def inputs(self, at: int, values: Sequence[Any]) -> list[Any]:
        """Return the inputs of a node as it takes them."""
        if at not in self._pair_of or self._mesh is None:
            return list(values)
        return [_given(value, self._mesh) for value in values]

    def result(self, at: int, value: Any) -> Any:
        """Return the result of a node as others take it: that of a row is summed over the ranks."""
        pair = self._pair_of.get(at)
        if pair is None or at != pair.row:
            return value
        return value.redistribute(placements=[Replicate()]).to_local()


@cache
def _shard_heads() -> None:
    """Tell DTensor that a processor's attention works on each sequence and head alone.

    PyTorch knows this of the operators of other devices.
    """
    name = "_scaled_dot_product_flash_attention_for_cpu"
    places = (Replicate(), Shard(0), Shard(1))

    def forward(*_: Any, **__: Any) -> list[Any]:
        return [([p, p], [p, p, p, None, None]) for p in places]

    def backward(*_: Any, **__: Any) -> list[Any]:
        return [([p, p, p], [p, p, p, p, p, p, None, None]) for p in places]

    register_sharding(getattr(torch.ops.aten, name).default)(forward)
    register_sharding(getattr(torch.ops.aten, f"{name}_backward").default)(backward)
