"""TPU Tile in the ``.pth`` form of the LayerDAG repository; opened without running code."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.settings import TpuTileConfig
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import (
    LABEL,
    SPLITS,
    AttributedGraph,
    Split,
    size_conditions,
)
from layerdag.graph.topology import longest_path_layers
from layerdag.runtime.json_shape import parse_json, plain_reason, require_known, require_shape
from layerdag.runtime.reading import read_parsed, require_plain_archive

KEYS = ("src_list", "dst_list", "x_n_list", "y_list")


def load_tpu_tile(config: TpuTileConfig) -> GraphDataset:
    """Load whichever of ``train.pth``, ``val.pth`` and ``test.pth`` lie in the folder.

    Each file holds lists ``src_list``, ``dst_list`` (int tensors), ``x_n_list`` (one node type a
    node) and ``y_list`` (runtime). If only ``val.pth`` is there, ``split.json`` beside it, lists of
    indices under "train", "val" and "test", makes three parts of it. Raises DataError if no file is
    there, or one is not of this format.
    """
    folder = config.folder
    parts: dict[Split, list[AttributedGraph]] = {
        split: _read(folder / f"{split}.pth", split)
        for split in SPLITS
        if (folder / f"{split}.pth").is_file()
    }
    if not parts:
        raise DataError(
            f"{folder}: holds none of train.pth, val.pth, test.pth; download the processed TPU "
            "Tile files of the LayerDAG repository into it."
        )
    if "train" not in parts:
        parts = _split(folder, next(iter(parts.values())))
    return GraphDataset.build("tpu_tile", "flow", parts)


def _read(path: Path, split: str) -> list[AttributedGraph]:
    try:
        require_plain_archive(path)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
        columns = [content[key] for key in KEYS]
        return [
            _tpu_tile_graph(f"{split}/{i}", *row)
            for i, row in enumerate(zip(*columns, strict=True))
        ]
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, MemoryError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: cannot be read ({reason}); download it again.") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"{path}: is not a TPU Tile file ({plain_reason(error)}); it must hold "
            f"{', '.join(KEYS)}. Download it again."
        ) from error


def _tpu_tile_graph(
    name: str, source_E: Any, target_E: Any, kind_N: Any, label: Any
) -> AttributedGraph:
    edges_2E = np.stack([_numbers(source_E), _numbers(target_E)]).astype(np.int64)
    edges_2E = np.unique(edges_2E, axis=1)
    kinds = _numbers(kind_N).reshape(-1).astype(np.int64).tolist()
    layer_N = longest_path_layers(len(kinds), edges_2E)
    return AttributedGraph(
        name=name,
        categories={"kind": [str(kind) for kind in kinds]},
        numbers={},
        edge_index_2E=edges_2E,
        edge_type_E=np.zeros(edges_2E.shape[1], dtype=np.int64),
        conditions={
            **({LABEL: float(label)} if math.isfinite(float(label)) else {}),
            **size_conditions(layer_N),
        },
    )


def _numbers(values: Any) -> np.ndarray:
    """Return a tensor or a flat list of numbers as an array.

    Raises ValueError if a tensor repeats its numbers, so that it may be larger than its file.
    """
    if isinstance(values, torch.Tensor):
        if values.numel() * values.element_size() > values.untyped_storage().nbytes():
            raise ValueError("a tensor repeats its numbers")
        return values.numpy()
    if not all(isinstance(value, int | float) for value in values):
        raise ValueError("a list holds something else than numbers")
    return np.asarray(values)


def _split(folder: Path, graphs: list[AttributedGraph]) -> dict[Split, list[AttributedGraph]]:
    path = folder / "split.json"
    if not path.is_file():
        raise DataError(
            f"{folder}: there is no train.pth, and no split.json that splits the file there is."
        )
    try:
        chosen = parse_json(read_parsed(path))
        require_shape(chosen, {split: [int] for split in SPLITS})
        require_known(chosen, (*SPLITS, "seed"))  # by which it was drawn, as its maker notes
        wrong = [n for split in SPLITS for n in chosen[split] if not 0 <= n < len(graphs)]
        if wrong:
            raise ValueError(f"{wrong[0]} is not one of 0 to {len(graphs) - 1}")
    except (ValueError, RecursionError) as error:
        raise DataError(
            f'{path}: must hold lists of numbers of graphs under "train", "val" and "test" '
            f"({plain_reason(error)}); correct it."
        ) from error
    return {split: [graphs[index] for index in chosen[split]] for split in SPLITS}
