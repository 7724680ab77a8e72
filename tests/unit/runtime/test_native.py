"""The compiled kernels: found once, or missing with what to do."""

import ctypes
import importlib.util
import inspect
import os
import subprocess
import sys
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from layerdag.errors import LayerdagError
from layerdag.models.base import SampleRequest
from layerdag.models.fast import model as fast
from layerdag.models.reference import model as reference
from layerdag.privacy import membership
from layerdag.runtime import native as waiting
from layerdag.runtime.native import library
from layerdag.surrogates.families import networks
from layerdag.training import loop


def test_the_library_is_opened_once():
    assert library() is library()


@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)])
def test_a_package_that_was_copied_says_how_to_install_it(monkeypatch, spec):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(LayerdagError, match=r"kernels of layerdag are missing; install .*pip inst"):
        library.__wrapped__()


PROCESSORS = (
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)
REQUEST = SampleRequest(torch.zeros(1, 0), torch.zeros(1, 0).long(), (0,))

# The processor time of an operation on two threads with a rest after it: threads that spin go on
# for milliseconds.
PROGRAM = """
import time, torch
from layerdag.runtime.native import set_openmp_passive

torch.set_num_threads(2)
values = torch.rand(100_000)

def processor_ms(times=25):
    values.sin()
    start = time.process_time()
    for _ in range(times):
        values.sin()
        time.sleep(0.008)
    return (time.process_time() - start) / times * 1000

before = processor_ms()
set_openmp_passive()
set_openmp_passive()
after = processor_ms()
print(before, after, values.sin().sum().item(), torch.get_num_threads())
"""


def measured() -> list[float]:
    """Return what the program prints where nobody has set anything."""
    names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=clean, capture_output=True, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()]


@pytest.mark.skipif(PROCESSORS < 2, reason="one processor: OpenMP never spins")
def test_a_thread_that_waits_sleeps_soon_whatever_was_imported_first():
    before, after, _, threads = measured()
    assert after < before / 2
    assert threads == 2


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_what_the_user_has_set_stands(monkeypatch, name):
    monkeypatch.setenv(name, "1000")
    monkeypatch.setattr(waiting, "threadpool_info", lambda: pytest.fail("was about to change it"))
    monkeypatch.setattr(waiting, "_THREAD", threading.local())
    waiting.set_openmp_passive()


class CalledError(Exception):
    pass


@pytest.mark.parametrize(
    ("module", "begin", "given"),
    [
        (loop, loop.train, (None, None)),
        (fast, fast.FastLayerDAG.sample, (None, REQUEST)),
        (reference, reference.ReferenceLayerDAG.sample, (Mock(), REQUEST)),
        (networks, networks.train_network, ([], [], None, None, 0)),
        (networks, networks.standard_predictions, (None, [])),
        (membership, membership.graph_losses, (None, None, [])),
    ],
)
def test_training_sampling_and_fitting_begin_with_it_in_any_process(
    monkeypatch, module, begin, given
):
    def called() -> None:
        raise CalledError

    monkeypatch.setattr(module, "set_openmp_passive", called)
    with pytest.raises(CalledError):
        inspect.unwrap(begin)(*given)  # without the check of types, which would refuse None


@pytest.fixture
def fresh(monkeypatch):
    """A thread that has not asked yet, in an environment without wishes."""
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(waiting, "_THREAD", threading.local())


def test_every_library_of_openmp_is_asked_once_in_its_own_way(monkeypatch, fresh):
    libraries = [
        {"user_api": "openmp", "prefix": "libgomp", "filepath": "gnu"},
        {"user_api": "blas", "prefix": "libopenblas", "filepath": "blas"},
        {"user_api": "openmp", "prefix": "libomp", "filepath": "llvm"},
    ]
    asked = []
    monkeypatch.setattr(waiting, "threadpool_info", lambda: libraries)
    monkeypatch.setattr(waiting, "_crowd", lambda path: asked.append(("crowd", path)))
    monkeypatch.setattr(waiting, "_sleep_at_once", lambda path: asked.append(("sleep", path)))
    waiting.set_openmp_passive()
    waiting.set_openmp_passive()
    assert asked == [("crowd", "gnu"), ("sleep", "llvm")]


def test_libraries_with_a_blocking_time_get_none(monkeypatch):
    given = []
    library = SimpleNamespace(kmp_set_blocktime=given.append)
    monkeypatch.setattr(ctypes, "CDLL", {"llvm": library, "other": SimpleNamespace()}.get)
    waiting._sleep_at_once("llvm")
    waiting._sleep_at_once("other")
    assert given == [0]


def test_gnu_threads_are_one_more_than_the_processors(monkeypatch):
    started = threading.Event()
    teams = []

    def parallel(function, data, team, flags):
        teams.append((team, threading.current_thread().name))
        started.set()

    library = SimpleNamespace(GOMP_parallel=parallel, omp_get_num_procs=lambda: 4)
    real = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda path: real(None) if path is None else library)
    waiting._crowd.__wrapped__("gnu")
    assert started.is_set()
    assert teams == [(5, "layerdag-waiting")]
