"""A corpus of a few small runs, cut from the embedded one, so that everything runs in seconds."""

from pathlib import Path

import pytest
from corpus_cut import cut_corpus


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs_of_split = {"train": 24, "val": 6, "test": 10}
    return cut_corpus(tmp_path_factory.mktemp("corpus"), runs_of_split, max_nodes=60)
