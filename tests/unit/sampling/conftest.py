"""Untrained checkpoints, made once for all tests of sampling, which leave them as they are."""

import pytest
from tiny_checkpoints import chains, costed_checkpoint, untrained_checkpoint

from layerdag.training.checkpoint import LoadedCheckpoint


@pytest.fixture(scope="session")
def costed(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return costed_checkpoint(tmp_path_factory.mktemp("costed"))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return untrained_checkpoint(tmp_path_factory.mktemp("reference"), chains(), "reference")
