"""Where commands of pages and scripts of examples run."""

import os
from collections.abc import Iterator

import pytest
from warm_python import programs


@pytest.fixture(scope="session")
def environment() -> Iterator[dict[str, str]]:
    """Return the environment of a user with one thread, where PyTorch is imported already."""
    user = {**os.environ, "OMP_NUM_THREADS": "1"}
    with programs(user) as folder:
        yield {**user, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
