"""The tables by name."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ._base import Illustrated, Table
from ._er_dag import ErDag
from ._latent_preferential import LatentPreferential
from ._runs import Record, Store
from .labels import FewReal, LabelQuintile, TpuTile
from .predictors import Predictors
from .training import Ablations, Curves

NAMES = (
    "latent-preferential",
    "er-dag",
    "label-quintile",
    "few-real",
    "tpu-tile",
    "predictors",
    "curves",
    "ablations",
)

SUMMARY = "summary"
"""On the command line, of the page of all tables."""


def table_named(
    name: str,
    tpu_tile: Path | None = None,
    na_edge: Path | None = None,
    dgrl: Path | None = None,
    dgrl_amp: Path | None = None,
) -> Table:
    """Return a table.

    Args:
        name: One of ``NAMES``.
        tpu_tile: Folder of TPU Tile, for the tables that have a part on it.
        na_edge: Folder of NA-Edge, for the table that has a part on it.
        dgrl: Folder of DGRL's families of computational graphs, for the table of predictors.
        dgrl_amp: Folder of DGRL's amplifiers, for the same.
    """
    tables: tuple[Table, ...] = (
        LatentPreferential(),
        ErDag(),
        LabelQuintile(tpu_tile),
        FewReal(tpu_tile, na_edge),
        TpuTile(tpu_tile),
        Predictors(dgrl, dgrl_amp),
        Curves(tpu_tile),
        Ablations(tpu_tile),
    )
    return {table.name: table for table in tables}[name]


def pictures_of(chosen: Table, records: Sequence[Record]) -> Mapping[str, str]:
    """Return the SVG files that stand on a table's page, by name; none where it has no charts."""
    return chosen.pictures(records) if isinstance(chosen, Illustrated) else {}


def records_of_all(results: Path) -> dict[str, list[Record]]:
    """Return the finished runs of every table, in the order of their names."""
    return {name: Store(name, results / name).records() for name in NAMES}
