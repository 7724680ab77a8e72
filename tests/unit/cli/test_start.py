"""A short verb starts no threads and searches for no garbage, and leaves both as they were."""

import gc
import subprocess
import sys

import pytest

from layerdag.cli.start import without_garbage_search


def test_the_search_is_off_inside_only():
    assert gc.isenabled()
    with without_garbage_search():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_waiting_threads_spin_briefly_unless_the_user_says_otherwise(given, expected):
    code = (
        "import os; from layerdag.cli.start import without_long_spinning; without_long_spinning();"
        "print(os.environ.get('GOMP_SPINCOUNT'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(expected)


@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")])
def test_numpy_is_told_to_start_no_threads_unless_the_user_says_otherwise(given, expected):
    code = (
        "import os; from layerdag.cli.start import without_blas_threads; without_blas_threads();"
        "print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


def test_a_numpy_that_is_there_is_left_alone():
    code = (
        "import os, numpy; from layerdag.cli.start import without_blas_threads;"
        "without_blas_threads(); print('OPENBLAS_NUM_THREADS' in os.environ)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
