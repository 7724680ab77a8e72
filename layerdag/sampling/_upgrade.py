"""Checkpoints of format 2 in the present one, whose schema and statistics name no training graph.

The weights stay as they are, and so must their shapes: what a shape depends on (the largest layer
and in-degree of the training graphs) is moved only as far as the shapes allow.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema, fit_table
from layerdag.errors import CheckpointError, UsageError
from layerdag.graph import (
    SHARED_BY,
    GraphStatistics,
    allowed_codes,
    neighbor_kinds,
    shared_statistics,
)
from layerdag.models import ModelSpec, build_without_weights
from layerdag.training import CheckpointContents, LoadedCheckpoint, read_checkpoint

OLD_FORMAT = 2


def read_old_checkpoint(path: str | Path) -> LoadedCheckpoint:
    """Read a checkpoint of format 2; its schema is as it was written.

    Raises:
        CheckpointError: As ``load_checkpoint``.
    """
    return read_checkpoint(path, formats=(OLD_FORMAT,))


def upgraded(
    old: LoadedCheckpoint, run_config: Mapping[str, Any], data: GraphDataset | None = None
) -> CheckpointContents:
    """Return a checkpoint of format 2 in the present format, without what resuming needs.

    Args:
        old: What ``read_old_checkpoint`` returned.
        run_config: Its settings without paths.
        data: The data set it was trained on. Without it, counts cannot say how many graphs stand
            behind them: they are rounded, and only extremes are moved.

    Raises:
        CheckpointError: If the schema is damaged.
        UsageError: If the data set is another one.
    """
    if data is not None:
        _require_same_graphs(old, data)
    try:
        schema = _schema(old.schema, old.spec.statistics.graphs, data)
        GraphSchema.from_dict(schema)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(
            f"{old.path}: the schema cannot be read ({error!r}); copy the checkpoint again."
        ) from error
    spec = replace(old.spec, statistics=_statistics(old.spec, data))
    meta = replace(old.meta)
    if data is not None:
        meta = replace(meta, data_fingerprint=data.fingerprint, split=data.split)
    return CheckpointContents(spec, old.model.state_dict(), schema, run_config, meta)


def with_neighbor_kinds(
    checkpoint: LoadedCheckpoint, run_config: Mapping[str, Any], data: GraphDataset
) -> CheckpointContents:
    """Return a checkpoint with the neighbors and codes that its training graphs share.

    Checkpoints have them unless they were written before there were any.

    Args:
        checkpoint: In the present format.
        run_config: Its settings without paths.
        data: The data set it was trained on.

    Raises:
        UsageError: If the kinds of the data set are others.
    """
    schema = GraphSchema.from_dict(checkpoint.schema)
    if data.schema.attributes[0] != schema.attributes[0]:
        raise UsageError(
            f"{checkpoint.path}: names other kinds of nodes than data set '{data.name}'; give the "
            "data it was trained on."
        )
    train = data.graphs["train"]
    parents, children = neighbor_kinds(
        train, checkpoint.spec.sizes.attributes[0], min(SHARED_BY, len(train))
    )
    statistics = replace(checkpoint.spec.statistics, parents=parents, children=children)
    if data.schema.attributes == schema.attributes:  # codes mean the same
        codes = allowed_codes(train, checkpoint.spec.sizes)
        statistics = replace(statistics, allowed_codes=codes)
    spec = replace(checkpoint.spec, statistics=statistics)
    weights = checkpoint.model.state_dict()
    return CheckpointContents(spec, weights, checkpoint.schema, run_config, checkpoint.meta)


def with_costs(
    checkpoint: LoadedCheckpoint, run_config: Mapping[str, Any], data: GraphDataset
) -> CheckpointContents:
    """Return a checkpoint with what operators cost in its training jobs, for sampling.

    Checkpoints have it unless they were written before there was any.

    Args:
        checkpoint: In the present format.
        run_config: Its settings without paths.
        data: The data set it was trained on.

    Raises:
        UsageError: If the operators or bins of the data set are others, or it has no costs.
    """
    schema = GraphSchema.from_dict(checkpoint.schema)
    if data.schema.attributes != schema.attributes:
        raise UsageError(
            f"{checkpoint.path}: names other operators or bins than data set '{data.name}'; give "
            "the data it was trained on."
        )
    if not data.schema.costs:
        raise UsageError(
            f"Data set '{data.name}' has no costs of operators that several graphs share; give "
            "jobs with FLOPs and bytes."
        )
    costs = data.schema.costs.to_dict()
    described = _as_json({**checkpoint.schema, "costs": costs})
    weights = checkpoint.model.state_dict()
    return CheckpointContents(checkpoint.spec, weights, described, run_config, checkpoint.meta)


def _require_same_graphs(old: LoadedCheckpoint, data: GraphDataset) -> None:
    """Raise UsageError unless the training graphs are those that the checkpoint counted."""
    found = GraphStatistics.measure(data.graphs["train"], data.schema.sizes())
    kinds = old.schema["categories"][0]["values"]
    same_kinds = list(getattr(data.schema.attributes[0], "values", ())) == list(kinds)
    if not same_kinds or found.in_degrees != old.spec.statistics.in_degrees:
        raise UsageError(
            f"{old.path}: was trained on other graphs than those of data set '{data.name}'; give "
            "the data it was trained on, or none."
        )


def _statistics(spec: ModelSpec, data: GraphDataset | None) -> GraphStatistics:
    """Return counts that keep the shapes of the weights and otherwise name no graph."""
    exact = spec.statistics
    layer_cap = _least_cap(spec, "layer", exact.max_layer_size)
    degree_cap = _least_cap(spec, "degree", exact.max_in_degree)
    moved = _capped(_capped(exact, "layer", layer_cap), "degree", degree_cap)
    rounded = replace(
        moved,
        graphs=_rounded_up(moved.graphs),
        attributes=tuple(tuple(map(_rounded_up, counts)) for counts in moved.attributes),
        edge_types=tuple(map(_rounded_up, moved.edge_types)),
        in_degrees=tuple(map(_rounded_pairs, moved.in_degrees)),
        out_degrees=tuple(map(_rounded_pairs, moved.out_degrees)),
        layer_sizes=_rounded_pairs(moved.layer_sizes),
        layer_counts=(),
    )
    if data is None:
        return rounded
    shared = shared_statistics(
        data.graphs["train"],
        data.schema.sizes(),
        layer_cap=layer_cap,
        in_degree_cap=degree_cap,
    )
    # Codes of numbers may be others today; the counts of the codes at hand are kept, rounded.
    shared = replace(shared, attributes=rounded.attributes)
    return shared if _shapes(replace(spec, statistics=shared)) == _shapes(spec) else rounded


def _least_cap(spec: ModelSpec, what: str, largest: int) -> int:
    """Return the smallest value to which a largest one can be moved with the same shapes."""
    shapes = _shapes(spec)
    low, high = 1, max(largest, 1)
    while low < high:
        middle = (low + high) // 2
        capped = replace(spec, statistics=_capped(spec.statistics, what, middle))
        if _shapes(capped) == shapes:
            high = middle
        else:
            low = middle + 1
    return high


def _capped(statistics: GraphStatistics, what: str, cap: int) -> GraphStatistics:
    """Return the counts with values above ``cap`` moved there."""
    if what == "layer":
        return replace(statistics, layer_sizes=_moved(statistics.layer_sizes, cap))
    pairs = tuple(_moved(pairs, cap) for pairs in statistics.in_degrees)
    return replace(statistics, in_degrees=pairs)


def _moved(pairs: Sequence[tuple[int, int]], cap: int) -> tuple[tuple[int, int], ...]:
    total: dict[int, int] = {}
    for value, count in pairs:
        total[min(value, cap)] = total.get(min(value, cap), 0) + count
    return tuple(sorted(total.items()))


def _shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's weights; no memory is spent on them."""
    model = build_without_weights(spec)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def _rounded_pairs(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((value, _rounded_up(count)) for value, count in pairs)


def _rounded_up(count: int) -> int:
    return -(-count // SHARED_BY) * SHARED_BY


def _schema(old: Mapping[str, Any], graphs: int, data: GraphDataset | None) -> dict[str, Any]:
    """Return a schema of the present format."""
    new = {name: value for name, value in old.items() if name != "condition_rows"}
    fresh = None if data is None else data.schema.to_dict()
    if fresh is None:
        new["numbers"] = [{**a, "bins": _without_ends(a["bins"])} for a in old["numbers"]]
        new["numeric_conditions"] = [_rounded(c, graphs) for c in old["numeric_conditions"]]
        new["condition_table"] = _table(old["condition_rows"], len(old["category_conditions"]))
        return _as_json(new)
    new["numbers"] = [
        {**a, "bins": _within(a["bins"], b["bins"])}
        for a, b in zip(old["numbers"], fresh["numbers"], strict=True)
    ]
    new |= {name: fresh[name] for name in ("numeric_conditions", "condition_table")}
    return _as_json(new)


def _as_json(data: dict[str, Any]) -> dict[str, Any]:
    """Return data as it comes back from a file: lists for tuples."""
    found: dict[str, Any] = json.loads(json.dumps(data))
    return found


def _without_ends(bins: list[list[float]]) -> list[list[float]]:
    """Return bins without the smallest and the largest value: their neighbors stand for them."""
    if not bins:
        return bins
    table_KQ = np.array(bins, dtype=np.float64)
    return np.clip(table_KQ, table_KQ[0, 1], table_KQ[-1, -2]).tolist()


def _within(bins: list[list[float]], allowed: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return bins with values moved into the range of others."""
    if not bins or not allowed:
        return bins
    return np.clip(np.array(bins, dtype=np.float64), allowed[0][0], allowed[-1][-1]).tolist()


def _rounded(condition: Mapping[str, Any], graphs: int) -> dict[str, Any]:
    """Return a numeric condition with a rounded scale and with quantiles inside the extremes."""
    std = float(f"{float(condition['std']):.3g}")
    unit = 10.0 ** (math.floor(math.log10(std)) - 2)
    quantiles = list(condition["quantiles"])
    last = len(quantiles) - 1
    kept = [
        q for i, q in enumerate(quantiles) if min(i, last - i) * graphs >= SHARED_BY * max(last, 1)
    ]
    return {
        **condition,
        "std": std,
        "mean": round(float(condition["mean"]) / unit) * unit,
        "quantiles": kept or [quantiles[last // 2]],
    }


def _table(rows: list[Any], num_categories: int) -> dict[str, Any]:
    """Return the table of what rows of single graphs said."""
    found = [[math.nan if value is None else float(value) for value in row] for row in rows]
    if not found:
        return fit_table(np.zeros((0, 0), np.int64), np.zeros((0, 0))).to_dict()
    table_RX = np.array(found, dtype=np.float64)
    codes_RM = table_RX[:, :num_categories].astype(np.int64)
    return fit_table(codes_RM, table_RX[:, num_categories:]).to_dict()
