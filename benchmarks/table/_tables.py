"""The tables by name."""

from pathlib import Path

from ._base import Table
from ._er_dag import ErDag
from ._latent_preferential import LatentPreferential
from .labels import FewReal, LabelQuintile, TpuTile
from .predictors import Predictors

NAMES = ("latent-preferential", "er-dag", "label-quintile", "few-real", "tpu-tile", "predictors")


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
    )
    return {table.name: table for table in tables}[name]
