"""The tables by name."""

from pathlib import Path

from ._base import Table
from ._er_dag import ErDag
from ._label_quintile import LabelQuintile
from ._latent_preferential import LatentPreferential

NAMES = ("latent-preferential", "er-dag", "label-quintile")


def table_named(name: str, tpu_tile: Path | None = None) -> Table:
    """Return a table.

    Args:
        name: One of ``NAMES``.
        tpu_tile: Folder of TPU Tile, for the table that has a part on it.
    """
    tables: tuple[Table, ...] = (LatentPreferential(), ErDag(), LabelQuintile(tpu_tile))
    return {table.name: table for table in tables}[name]
