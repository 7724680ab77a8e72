"""The tables by name."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ._base import NOWHERE, Folders, Illustrated, Table
from ._er_dag import ErDag
from ._latent_preferential import LatentPreferential
from ._runs import Record, Store
from .generators import Generators
from .labels import FewReal, LabelQuintile, TpuTile
from .predictors import Predictors
from .training import Ablations, Curves

NAMES = (
    "latent-preferential",
    "er-dag",
    "generators",
    "label-quintile",
    "few-real",
    "tpu-tile",
    "predictors",
    "curves",
    "ablations",
)

SUMMARY = "summary"
"""On the command line, of README's table of all tables."""


def table_named(name: str, folders: Folders = NOWHERE) -> Table:
    """Return a table.

    Args:
        name: One of ``NAMES``.
        folders: Of the data sets; a table without any of its own can show its page alone.
    """
    tables: tuple[Table, ...] = (
        LatentPreferential(),
        ErDag(),
        LabelQuintile(folders.tpu_tile),
        FewReal(folders.tpu_tile, folders.na_edge, folders.amp),
        TpuTile(folders.tpu_tile),
        Generators(folders),
        Predictors(folders.dgrl, folders.amp),
        Curves(folders.tpu_tile),
        Ablations(folders.tpu_tile),
    )
    return {table.name: table for table in tables}[name]


def pictures_of(chosen: Table, records: Sequence[Record]) -> Mapping[str, str]:
    """Return the SVG files that stand on a table's page, by name; none where it has no charts."""
    return chosen.pictures(records) if isinstance(chosen, Illustrated) else {}


def records_of_all(results: Path) -> dict[str, list[Record]]:
    """Return the finished runs of every table, in the order of their names."""
    return {name: Store(name, results).records() for name in NAMES}
