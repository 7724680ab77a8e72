"""What a unit of fully sharded data parallelism holds, as far as a trace tells it."""

from dataclasses import dataclass

from layerdag.workloads.scaling._program import Program


@dataclass(frozen=True)
class Unit:
    """Parameters that are gathered or scattered in one collective.

    Attributes:
        elements: Elements of a shard.
        members: Ranks that share.
        item: Bytes of an element.
        padded: Whether each parameter is cut by rows and filled up (FSDP2), or the unit as a whole
            is cut, as in ZeRO.
        uneven: (rows, elements of a row) of parameters known; the others are taken to divide.
    """

    elements: int
    members: int
    item: int
    padded: bool
    uneven: tuple[tuple[int, int], ...] = ()

    def shard(self, members: int) -> int:
        """Return the elements of a shard on another number of ranks."""
        known = sum(_cut(rows, self.members) * each for rows, each in self.uneven)
        rest = -(-(self.elements - known) * self.members // members)
        return rest + sum(_cut(rows, members) * each for rows, each in self.uneven)

    def held(self, members: int, place: int = 0) -> int:
        """Return the elements of the shard of the rank at ``place``, without filling."""
        missing = sum(
            (_cut(rows, members) - _own(rows, members, place)) * each for rows, each in self.uneven
        )
        return self.shard(members) - missing


def _cut(rows: int, members: int) -> int:
    """Return the rows of a shard, filled up."""
    return -(-rows // members)


def _own(rows: int, members: int, place: int) -> int:
    """Return the rows that the rank at ``place`` holds."""
    each = _cut(rows, members)
    return min(each, max(0, rows - place * each))


def units_of(
    program: Program, gathers: list[int], scatters: list[int], members: int
) -> dict[int, Unit]:
    """Return the unit of each gather and scatter of a role, by row."""
    padded = any("chunk_cat" in name for name in program.names)
    item = _gradient_item(program, gathers, scatters, members)
    found = {}
    for row in gathers:
        size = int(program.item_N[row])
        found[row] = Unit(int(program.comm_N[row]) // size, members, size, padded)
    for row in scatters:
        whole = int(program.comm_N[row]) // item
        found[row] = Unit(-(-whole // members), members, item, padded)
    return found


def _gradient_item(program: Program, gathers: list[int], scatters: list[int], members: int) -> int:
    """Return the bytes of an element of the gradients: shards of weights have as many elements."""
    if not scatters:
        return 1
    stated = int(program.item_N[scatters[0]])
    shards = {int(program.comm_N[row]) // int(program.item_N[row]) for row in gathers}
    for item in (stated, 2, 4, 8):
        whole = [int(size) // item for size in program.comm_N[scatters].tolist()]
        if shards and {-(-size // members) for size in whole} == shards:
            return item
    return stated
