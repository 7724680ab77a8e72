"""TPU Tile in folds: what is held out, and what the page makes of predictions."""

import numpy as np
import pytest
import table_records
from benchmark_tables import page, runs, tpu_tile

from layerdag.dag.dag import graph_hash


def test_every_graph_is_held_out_once_and_never_beside_an_equal_one(data):
    known = [*data.graphs["train"], *data.graphs["val"]]
    folds = tpu_tile.folds_of(data, folds=4)
    assert sorted(id(dag) for fold in folds for dag in fold.test) == sorted(map(id, known))
    sizes = [len(fold.test) for fold in folds]
    assert max(sizes) - min(sizes) <= 2
    for fold in folds:
        hashes = [{graph_hash(dag) for dag in part} for part in (fold.real, fold.test)]
        assert not hashes[0] & hashes[1]
        parts = [fold.data.graphs[split] for split in ("train", "val")]
        assert len(parts[0]) + len(parts[1]) == len(fold.real)
        assert not {graph_hash(dag) for dag in parts[0]} & {graph_hash(dag) for dag in parts[1]}


def record(fold: int, labels: list[float], real: list[float], samples: list[float]) -> runs.Record:
    """Return the record of a fold with the same predictions of both families."""
    rows = {tpu_tile.REAL: real, tpu_tile.POSTERIOR: samples, tpu_tile.TAUGHT: real}
    predictions = dict.fromkeys(("boosting", "message_passing"), rows)
    figures = {"labels": labels, "predictions": predictions, "ratios": {"nodes": 1.0 + fold}}
    config = {"task": "tpu_tile", "part": "final", "seconds": 150.0}
    return table_records.record("tpu-tile", f"fold{fold}", figures, config, seed=fold)


def test_scores_are_of_the_predictions_of_all_folds_together():
    """Each fold alone has a correlation of 1; together the samples' predictions are wrong."""
    made = [
        record(0, [1, 2, 3], [1, 2, 3], [10, 11, 12]),
        record(1, [11, 12, 13], [11, 12, 13], [1, 2, 3]),
    ]
    text = tpu_tile.transfer_table(made)
    assert "| boosted trees | real graphs | 1.00 | 1.00 |  |  |" in text
    assert (
        "| message passing | samples, labels of surrogates | 1.00 | 1.00 | 1.00 [1.00, 1.00] |"
        in text
    )
    together = np.corrcoef([1, 2, 3, 11, 12, 13], [10, 11, 12, 1, 2, 3])[0, 1]
    assert f"| samples, labels of the posterior | {page.number(float(together))} |" in text
    assert "| nodes | 1.50 ± 0.71 |  |" in tpu_tile.TpuTile().page(made)
    config = {"task": "tpu_tile", "part": "drawn", "seconds": 150.0}
    drawn = table_records.record("tpu-tile", "fold0-drawn", {"ratios": {"nodes": 3.0}}, config)
    whole = tpu_tile.TpuTile().page([*made, drawn])
    assert "2 of 9 folds are made" in whole
    assert "as `layerdag sample` draws, 1 folds" in whole
    assert "| nodes | 1.50 ± 0.71 | 3.00 |" in whole


def test_a_request_without_conditions_gets_those_of_the_generators_own_graphs(data):
    fold = tpu_tile.folds_of(data, folds=4)[0]
    drawn = tpu_tile._drawn_conditions(fold, 200)
    known = [dag.conditions["num_nodes"] for dag in fold.data.graphs["train"]]
    nodes = [row["num_nodes"] for row in drawn]
    assert min(known) <= min(nodes) < max(nodes) <= max(known)
    assert np.median(nodes) == pytest.approx(np.median(known), rel=0.1)


def test_without_data_the_table_says_what_it_needs():
    with pytest.raises(SystemExit, match="--tpu-tile FOLDER"):
        next(tpu_tile.TpuTile().make(None, None))
