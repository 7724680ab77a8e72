"""The first losses of a tiny run, pinned: a refactoring must not change them.

After a change that is meant to change them, write the file anew with
``UPDATE_GOLDEN=1 pytest tests/unit/training/test_golden_losses.py`` and say why in the commit.
"""

import json
import os
from pathlib import Path

import pytest

from layerdag.graph import DAGBatch
from layerdag.models import ModelSpec
from layerdag.training import TrainingRun, TrainSettings, train
from layerdag.training.monitoring import JsonlLogger

NAMES = ("layer_size", "node", "edge")


def test_reference_losses_are_those_of_the_golden_file(
    data: DAGBatch, spec: ModelSpec, tmp_path: Path, repository: Path
):
    golden = repository / "tests" / "golden" / "reference_losses.json"
    settings = TrainSettings(
        max_steps=12, batch_graphs=4, evaluate_every=6, log_every=1, precision="float32"
    )
    logger = JsonlLogger(tmp_path / "train.jsonl")
    train(TrainingRun(spec, data, data, tmp_path), settings, loggers=[logger])
    logger.close()
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    found = [
        {"step": line["step"], **{k: v for k, v in line.items() if k.endswith(NAMES)}}
        for line in lines
    ]
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(json.dumps(found, indent=1) + "\n")
    wanted = json.loads(golden.read_text())
    assert len(found) == len(wanted) == 14  # 12 steps and 2 validations
    for line, expected in zip(found, wanted, strict=True):
        assert line == pytest.approx(expected, rel=1e-3)
