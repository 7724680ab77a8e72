"""Untrained checkpoints, made once for all rooms, whose tests leave them as they are."""

from collections.abc import Iterator

import pytest
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.sampling import generation
from layerdag.training.checkpoint import LoadedCheckpoint


@pytest.fixture(scope="module", autouse=True)
def few_redraws() -> Iterator[None]:
    """Draw faulty jobs twice more instead of eight times: untrained models draw hardly others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "_REDRAWS_OF_FAULTS", 2)
        yield


@pytest.fixture(scope="session")
def flow(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return chain_checkpoint(tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return job_checkpoint(tmp_path_factory.mktemp("trace"))
