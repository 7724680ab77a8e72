"""A corpus of a few small runs, cut from the embedded one, so that everything runs in seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus_cut import cut_corpus


@pytest.fixture(scope="package", autouse=True)
def read_once(tmp_path_factory) -> Iterator[None]:
    """Keep data sets that were read, as a user's cache does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERDAG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory) -> Path:
    runs_of_split = {"train": 24, "val": 6, "test": 10}
    return cut_corpus(tmp_path_factory.mktemp("corpus"), runs_of_split, max_nodes=60)
