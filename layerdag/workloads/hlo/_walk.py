"""From a parsed module to its operations in program order: calls inlined, loops unrolled."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from layerdag.errors import DataError
from layerdag.workloads.hlo import _costs
from layerdag.workloads.hlo._attributes import groups_of, pairs_of, reduced_elements, trip_count
from layerdag.workloads.hlo._program import Collective, Computation, Program, Tensor

COLLECTIVES = frozenset(
    (
        *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_broadcast"),
        *("collective_permute", "cross-replica-sum"),
    )
)
_INLINED = frozenset(("call", "composite", "manual_computation", "async_start"))
_BRANCHES = frozenset(("if", "case"))
_UNKNOWN = frozenset(("send", "recv", "infeed", "outfeed"))
_MOST_ITEMS = 5_000_000
_DEEPEST = 100

Values = dict[Any, tuple[int, ...]]


class Walk:
    """Collects the items of a module.

    Args:
        module: Parsed by jaxlib.
        source: For messages.
        counts: Replicas and partitions that the text of an HLO module states.
    """

    def __init__(self, module: Any, source: str, counts: Mapping[str, int]) -> None:
        self._module, self._source = module, source
        self._functions: dict[str, Any] = {}
        self._meshes: dict[str, Any] = {}
        for operation in module.body.operations:
            found = self._functions if _name(operation) == "func" else self._meshes
            if "sym_name" in operation.attributes:
                found[_text(operation.attributes["sym_name"])] = operation
        listed = module.operation.attributes
        self._replicas = max(
            _stated(listed, "mhlo.num_replicas"),
            counts.get("replica_count", 1),
            counts.get("num_replicas", 1),
        )
        self._partitions = max(
            _stated(listed, "mhlo.num_partitions"), counts.get("num_partitions", 1)
        )
        self._items: list[Computation | Collective] = []
        self._without_rule: Counter[str] = Counter()
        self._static: dict[Any, Computation] = {}
        self._depth = 0

    def program(self) -> Program:
        """Return everything that the entry function does.

        Raises:
            DataError: As ``read_program``.
        """
        entry = self._functions.get("main") or next(iter(self._functions.values()), None)
        if entry is None:
            self._refuse("holds no function")
        self._block(entry.regions[0].blocks[0], {})
        name = self._module.operation.attributes
        return Program(
            _text(name["sym_name"]) if "sym_name" in name else self._source,
            self._devices(),
            tuple(self._items),
            tuple(self._notes()),
        )

    def _devices(self) -> int:
        """Return the number of devices: stated, or the largest that a collective names."""
        named = [
            rank
            for item in self._items
            if isinstance(item, Collective)
            for group in (*item.groups, *item.pairs)
            for rank in group
        ]
        return max(self._replicas * self._partitions, 1 + max(named, default=0))

    def _notes(self) -> list[str]:
        notes = []
        if self._without_rule:
            listed = ", ".join(f"{name} ({count})" for name, count in self._without_rule.items())
            notes.append(f"no rule of costs, counted by their bytes alone: {listed}.")
        has_mesh = any(_name(found) == "mesh" for found in self._meshes.values())
        if has_mesh and not any(isinstance(item, Collective) for item in self._items):
            notes.append(
                "shardings are annotations only and no collective is there: compile the module for "
                "its devices first and give the partitioned HLO."
            )
        return notes

    def _block(self, block: Any, values: Values) -> tuple[tuple[int, ...], ...]:
        """Add the operations of a block; return the items behind what it returns."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"nests calls and loops more than {_DEEPEST} deep")
        returned: tuple[tuple[int, ...], ...] = ()
        for view in block.operations:
            operation = view.operation
            if _name(operation) == "return":
                returned = tuple(values.get(value, ()) for value in operation.operands)
                break
            self._operation(operation, values)
        self._depth -= 1
        return returned

    def _operation(self, operation: Any, values: Values) -> None:
        """Add one operation, or those inside it."""
        name = _name(operation)
        given = [values.get(value, ()) for value in operation.operands]
        if name in _INLINED:
            results = self._inlined(operation, name, given, values)
        elif name == "while":
            results = self._loop(operation, given, values)
        elif name in _BRANCHES:
            results = self._branches(operation, values)
        elif name in _UNKNOWN:
            self._refuse(f"has the operation '{name}', which names no device of the same program")
        else:
            parents = tuple(sorted({item for of in given for item in of}))
            results = [self._added(operation, name, parents)] * len(operation.results)
        for value, behind in zip(operation.results, results, strict=False):
            values[value] = behind

    def _added(self, operation: Any, name: str, parents: tuple[int, ...]) -> tuple[int, ...]:
        """Add an operation that is not taken apart; one without cost hands its parents on."""
        if name in COLLECTIVES:
            self._items.append(self._collective(operation, name, parents))
        else:
            cost = self._cost(operation, name)
            if not cost.flops and not cost.mem_bytes:
                return parents
            item = Computation(
                name, cost.flops, cost.mem_bytes, cost.element, parents, name in _costs.MATRIX
            )
            self._items.append(item)
        if len(self._items) > _MOST_ITEMS:
            self._refuse(f"has more than {_MOST_ITEMS:,} operations when its loops are unrolled")
        return (len(self._items) - 1,)

    def _cost(self, operation: Any, name: str) -> Computation:
        """Return the operation without parents; loops ask for the same one many times."""
        if operation not in self._static:
            inputs, outputs = self._tensors(operation.operands), self._tensors(operation.results)
            if name == "fusion":
                flops = sum(self._inner_flops(region) for region in operation.regions)
            else:
                reduced = reduced_elements(operation, name, inputs)
                flops = _costs.flops_of(name, inputs, outputs, reduced)
                if name not in (
                    _costs.FREE | _costs.MOVES | _costs.ELEMENTWISE | _costs.MATRIX
                ) and (name not in ("reduce", "reduce_window")):
                    self._without_rule[name] += 1
            moved = _costs.bytes_of(name, inputs, outputs)
            widest = max((*inputs, *outputs), key=lambda t: t.element_bits, default=None)
            element = widest.element if widest else ""
            self._static[operation] = Computation(name, flops, moved, element, ())
        return self._static[operation]

    def _inner_flops(self, region: Any) -> int:
        """Return the operations inside a fusion."""
        total = 0
        for block in region.blocks:
            for view in block.operations:
                name = _name(view.operation)
                if name in _INLINED:
                    total += self._inner_flops(self._callee(view.operation).regions[0])
                elif name != "return":
                    total += self._cost(view.operation, name).flops
        return total

    def _collective(self, operation: Any, name: str, parents: tuple[int, ...]) -> Collective:
        """Return a communication operation, its devices as ranks."""
        given = sum(tensor.num_bytes for tensor in self._tensors(operation.operands))
        devices = (self._replicas, self._partitions)
        if name == "collective_permute":
            return Collective(name, given, (), pairs_of(operation, devices), parents)
        groups = groups_of(operation, devices, self._meshes)
        return Collective(name, given, groups, (), parents)

    def _inlined(
        self, operation: Any, name: str, given: list[tuple[int, ...]], values: Values
    ) -> Sequence[tuple[int, ...]]:
        """Add the operations of a called function or a region that runs once."""
        if operation.regions and len(operation.regions[0].blocks):
            block = operation.regions[0].blocks[0]
            inner = dict(values)
        else:
            block, inner = self._callee(operation).regions[0].blocks[0], {}
        inner.update(zip(block.arguments, given, strict=False))
        return self._block(block, inner)

    def _callee(self, operation: Any) -> Any:
        """Return the function that an operation calls."""
        for key in ("callee", "decomposition", "called_computation"):
            if key in operation.attributes:
                called = str(operation.attributes[key]).lstrip("@").strip('"')
                if called in self._functions:
                    return self._functions[called]
        self._refuse(f"calls a function that is not there ({operation.name})")

    def _loop(
        self, operation: Any, given: list[tuple[int, ...]], values: Values
    ) -> Sequence[tuple[int, ...]]:
        """Add the body of a loop as often as it runs."""
        turns = trip_count(operation)
        if turns is None:
            self._refuse(
                "has a loop whose trip count does not follow from constants "
                f"({operation.location}); unroll it, or give the HLO that XLA compiled"
            )
        body = operation.regions[1].blocks[0]
        carried: Sequence[tuple[int, ...]] = given
        for _ in range(turns):
            carried = self._block(
                body, {**values, **dict(zip(body.arguments, carried, strict=False))}
            )
        return carried

    def _branches(self, operation: Any, values: Values) -> Sequence[tuple[int, ...]]:
        """Add the branch that moves most bytes."""
        begin, tried = len(self._items), []
        for region in operation.regions:
            returned = self._block(region.blocks[0], dict(values))
            items = self._items[begin:]
            moved = sum(i.mem_bytes if isinstance(i, Computation) else i.num_bytes for i in items)
            tried.append((moved, items, returned))
            del self._items[begin:]
        _, items, returned = max(tried, key=lambda found: found[0])
        self._items += items
        return returned

    def _tensors(self, values: Any) -> list[Tensor]:
        """Return the tensors of operands or results, those of tuples one by one."""
        return [tensor for value in values for tensor in self._tensors_of(value.type)]

    def _tensors_of(self, kind: Any) -> list[Tensor]:
        name = type(kind).__name__
        if name == "TupleType":
            parts = (kind.get_type(i) for i in range(kind.num_types))
            return [tensor for part in parts for tensor in self._tensors_of(part)]
        if name != "RankedTensorType":
            return []
        if not kind.has_static_shape:
            self._refuse(f"has a dynamic shape ({kind}); refine it to sizes first")
        return [Tensor(tuple(kind.shape), str(kind.element_type))]

    def _refuse(self, what: str) -> NoReturn:
        raise DataError(f"{self._source}: {what}.")


def _name(operation: Any) -> str:
    """Return the name of an operation without its dialect."""
    return str(operation.operation.name).rpartition(".")[2]


def _text(attribute: Any) -> str:
    return str(attribute).strip('"')


def _stated(attributes: Any, name: str) -> int:
    """Return a whole number among attributes, 1 where it is absent."""
    if name not in attributes:
        return 1
    return max(int(str(attributes[name]).partition(":")[0]), 1)
