"""Untrained checkpoints, made once for all tests of sampling, which leave them as they are."""

import pytest
from tiny_checkpoints import (
    chain_checkpoint,
    chains,
    costed_checkpoint,
    job_checkpoint,
    untrained_checkpoint,
)

from layerdag.training.checkpoint import LoadedCheckpoint


@pytest.fixture(scope="session")
def flow(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return chain_checkpoint(tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return job_checkpoint(tmp_path_factory.mktemp("trace"))


@pytest.fixture(scope="session")
def costed(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return costed_checkpoint(tmp_path_factory.mktemp("costed"))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return untrained_checkpoint(tmp_path_factory.mktemp("reference"), chains(), "reference")
