"""The tables by name."""

from pathlib import Path

from ._base import Table
from ._er_dag import ErDag
from ._latent_preferential import LatentPreferential
from .generators import Folders, Generators
from .labels import FewReal, LabelQuintile, TpuTile

NAMES = ("latent-preferential", "er-dag", "label-quintile", "few-real", "tpu-tile", "generators")


def table_named(
    name: str,
    tpu_tile: Path | None = None,
    na_edge: Path | None = None,
    amp: Path | None = None,
) -> Table:
    """Return a table.

    Args:
        name: One of ``NAMES``.
        tpu_tile: Folder of TPU Tile, for the tables that have a part on it.
        na_edge: Folder of NA-Edge, for the tables that have a part on it.
        amp: Folder of operational amplifiers, for the table that has a part on them.
    """
    tables: tuple[Table, ...] = (
        LatentPreferential(),
        ErDag(),
        LabelQuintile(tpu_tile),
        FewReal(tpu_tile, na_edge),
        TpuTile(tpu_tile),
        Generators(Folders(tpu_tile, na_edge, amp)),
    )
    return {table.name: table for table in tables}[name]
