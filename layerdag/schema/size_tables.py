"""Tables of sizes that training programs have, to draw the sizes of sampled programs from.

A program is drawn without numbers: its sizes are expressions of the entries of a table ("B0" a
batch, "w0" a width; ``layerdag.programs.sizes``). What remains are a few numbers per program. Only
numbers that several training programs share are kept, each with the number of programs, rounded up.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.graph.attributed_graph import Condition
from layerdag.graph.formats.program_json import is_size
from layerdag.schema.shared_table import SharedTable, are_counts, draw_value, rounded_up

FAMILY, DEPTH = "family", "depth"
"""Conditions of programs: their family, and the number of their units."""


@dataclass(frozen=True)
class SizeColumn:
    """The numbers of one entry in the programs of one family, and how many programs have each.

    The family is "" for all programs. ``same`` are entries that have the same number in all
    programs of the family that have both, such as the length of sequences and the rows of a
    position embedding.
    """

    family: str
    entry: str
    numbers: tuple[int, ...]
    programs: tuple[int, ...]
    same: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ValueError unless this is an entry with its numbers."""
        whole = are_counts((*self.numbers, *self.programs))
        if not (whole and all(map(is_size, (self.entry, *self.same)))):
            raise ValueError(f"{self.entry!r:.40} is no entry with its numbers")
        if len(self.numbers) != len(self.programs):
            raise ValueError(f"the numbers of {self.entry} need as many counts")


@dataclass(frozen=True)
class SizeTables(SharedTable[SizeColumn]):
    """What the tables of sizes of training programs hold: of each family, and of all together."""

    def draw(
        self, entry: str, family: str, rng: np.random.Generator, drawn: Mapping[str, int]
    ) -> int:
        """Return a number for an entry: of its family, else of all, else of entries of its role.

        ``drawn`` are the entries that have numbers already.
        """
        for name in self.same(entry, family):
            if name in drawn:
                return drawn[name]
        role = [c for c in self.columns if not c.family and c.entry[0] == entry[0]]
        fitting = [
            *(c for c in self.columns if (c.family, c.entry) == (family, entry)),
            *(c for c in role if c.entry == entry),
            *role,
        ]
        if not fitting:
            return int(rng.choice(_USUAL[entry[0]]))
        return draw_value(fitting[0].numbers, fitting[0].programs, rng)

    def same(self, entry: str, family: str) -> tuple[str, ...]:
        """Return the entries that always have the number of an entry in a family."""
        found = (c.same for c in self.columns if (c.family, c.entry) == (family, entry))
        return next(found, ())


_USUAL = {
    "B": (8, 16, 32, 64),
    "n": (16, 32, 64, 128),
    "w": (64, 128, 256),
    "r": (256, 512, 1024),
    "h": (2, 4, 8),
}
"""Of roles that no training program has."""

NO_SIZES = SizeTables()


def fit_sizes(
    rows: Sequence[Mapping[str, Condition]], program_G: np.ndarray, needed: int
) -> SizeTables:
    """Return what the tables of training programs hold.

    Rows are the conditions of each graph, entries of its table and its family among them. A number
    that fewer than ``needed`` programs have counts for the nearest that enough have; an entry
    without any is left out.
    """
    holders: defaultdict[tuple[str, str], defaultdict[int, set[int]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for row, program in zip(rows, program_G.tolist(), strict=True):
        for entry, number in row.items():
            if is_size(entry) and isinstance(number, int | float):
                for family in {"", str(row.get(FAMILY, ""))}:
                    holders[family, entry][int(number)].add(program)
    columns = []
    for (family, entry), found in sorted(holders.items()):
        shared = sorted(number for number, programs in found.items() if len(programs) >= needed)
        if not shared:
            continue
        counts: Counter[int] = Counter()
        for number, programs in found.items():
            distance = np.abs(np.log(np.array(shared) / number))
            counts[shared[int(distance.argmin())]] += len(programs)
        rounded = tuple(rounded_up(counts[number], needed) for number in shared)
        same = _same(rows, family, entry, program_G, needed) if family else ()
        columns.append(SizeColumn(family, entry, tuple(shared), rounded, same))
    return SizeTables(tuple(columns))


def _same(
    rows: Sequence[Mapping[str, Condition]],
    family: str,
    entry: str,
    program_G: np.ndarray,
    needed: int,
) -> tuple[str, ...]:
    equal: dict[str, bool] = {}
    programs: defaultdict[str, set[int]] = defaultdict(set)
    for row, program in zip(rows, program_G.tolist(), strict=True):
        if row.get(FAMILY) == family and entry in row:
            for other in row:
                if is_size(other) and other != entry:
                    equal[other] = equal.get(other, True) and row[other] == row[entry]
                    programs[other].add(program)
    return tuple(sorted(n for n, always in equal.items() if always and len(programs[n]) >= needed))
