"""A short verb starts no threads and searches for no garbage, and leaves both as they were."""

import gc
import subprocess
import sys

import pytest

from layerdag.cli import _main as start, main, without_garbage_search
from layerdag.errors import UsageError


def test_the_search_is_off_inside_only():
    assert gc.isenabled()
    with without_garbage_search():
        assert not gc.isenabled()
    assert gc.isenabled()


def _told(function: str, name: str, given: dict[str, str]) -> str:
    """Return what a new process finds in the environment after a function of ``start``."""
    code = (
        f"import os; from layerdag.cli._start import {function}; {function}();"
        f"print(os.environ.get('{name}'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")])
def test_numpy_is_told_to_start_no_threads_unless_the_user_says_otherwise(given, expected):
    assert _told("without_blas_threads", "OPENBLAS_NUM_THREADS", given) == expected


def test_a_numpy_that_is_there_is_left_alone():
    code = (
        "import os, numpy; from layerdag.cli._start import without_blas_threads;"
        "without_blas_threads(); print('OPENBLAS_NUM_THREADS' in os.environ)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "None")],
)
def test_threads_spin_briefly_unless_the_user_says_otherwise(given, expected):
    assert _told("with_brief_spinning", "GOMP_SPINCOUNT", given) == expected


def test_a_torch_that_is_there_has_read_its_settings():
    code = (
        "import os, sys; sys.modules['torch'] = sys; from layerdag.cli._start import "
        "with_brief_spinning; with_brief_spinning(); print('GOMP_SPINCOUNT' in os.environ)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("verb", "room", "expected"), [("train", "models", True), ("simulate", "simulation", False)]
)
def test_threads_are_told_before_a_verb_that_trains_is_imported(monkeypatch, verb, room, expected):
    order = []

    def imported(name):
        order.append(name)
        raise UsageError("enough")

    monkeypatch.setattr(start, "with_brief_spinning", lambda: order.append("told"))
    monkeypatch.setattr(start.importlib, "import_module", imported)
    assert main([verb]) == 2
    assert order == [*(["told"] if expected else []), f"layerdag.cli.verbs.{room}._{verb}"]
