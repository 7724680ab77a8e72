"""Untrained checkpoints, made once for all rooms, whose tests leave them as they are."""

import pytest
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.training.checkpoint import LoadedCheckpoint


@pytest.fixture(scope="module", autouse=True)
def few_redraws_everywhere(few_redraws: None) -> None:
    """Draw few faulty jobs again in all tests of rooms."""


@pytest.fixture(scope="session")
def flow(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return chain_checkpoint(tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return job_checkpoint(tmp_path_factory.mktemp("trace"))
