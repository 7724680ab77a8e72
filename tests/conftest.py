"""Fixtures that every test may use."""

import gc
import os
import pickle
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from pkgutil import resolve_name

import first_calls
import jaxtyping
import numpy as np
import pytest
import torch
from absl import logging as absl_logging
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import ResultDefault
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigSource
from hypothesis import settings
from laws import USUAL
from threadpoolctl import threadpool_limits

# ``make test`` shares the processors among several processes, so each keeps to one thread, as do
# the programs that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("LAYERDAG_CACHE", "off")  # an audit is computed, and not remembered
torch.set_num_threads(1)
threadpool_limits(1)

# Laws are checked on the same examples in every run, so that a failing run shows a new defect. What
# a random search finds (``make search``) is kept beside the law as an ``@example``.
settings.register_profile(
    "fixed", derandomize=True, database=None, deadline=None, max_examples=USUAL
)
settings.register_profile(
    "search", deadline=None, max_examples=20 * USUAL, print_blob=True, derandomize=False
)
settings.load_profile("fixed")

# dp-accounting logs by absl, whose handler closes the stream that it began with when Hydra sets up
# logging. That may be the one in which pytest catches standard error.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__

# Torch and ten thousand tests are millions of objects that stay. The search for cycles, which would
# go through them again and again, waits until all are collected, and then leaves them alone.
gc.disable()

# Before the package is imported: pytest's plugin of jaxtyping decorates its functions then.
first_calls.install()

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_collection_finish() -> None:
    """Search for cycles from here on, among what tests make, and thirty times as seldom."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


WHOLE_COMMANDS = (
    "contract/test_damaged_json",
    "integration",
    "unit/api",
    "unit/cli",
    "unit/privacy/test_shadows",
    "unit/publication",
    "unit/sampling",
)
"""Folders and files of tests that train and sample from end to end."""


@pytest.fixture(scope="module", autouse=True)
def shapes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check the shapes of every call, except where that triples the time of a whole command.

    The functions that such a command calls are checked by the tests of their own rooms.
    """
    inside = request.path.relative_to(REPOSITORY / "tests").as_posix()
    jaxtyping.config.update("jaxtyping_disable", inside.startswith(WHOLE_COMMANDS))
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


FEWER = {
    "layerdag.evaluation.metrics.whole_programs._TREES": 40,
    "layerdag.datasets.splits.ROUNDS": 1,  # 100,000, for secrecy, take 0.1 s of each data set
    "layerdag.privacy.membership_attacks.TREES": 30,
    "layerdag.privacy.membership_attacks.TRAIT_TREES": 20,
}
"""Repetitions that every audit makes many of and that no answer of a test depends on."""


@pytest.fixture(scope="session", autouse=True)
def fewer_repetitions() -> Iterator[None]:
    """Make what is repeated without need a few times."""
    with pytest.MonkeyPatch.context() as patch:
        for name, number in FEWER.items():
            patch.setattr(name, number)
        patch.setattr(os, "fsync", lambda descriptor: None)  # no test takes the power away
        yield


def remembered(call: Callable[..., object], key: Callable[..., Hashable]) -> Callable[..., object]:
    """Return a function that computes what it returns once for each key, and returns copies."""
    known: dict[Hashable, bytes] = {}

    def again(*args: object, **more: object) -> object:
        name = key(*args, **more)
        if name not in known:
            known[name] = pickle.dumps(call(*args, **more))
        return pickle.loads(known[name])  # Hydra changes what it is given

    return again


@pytest.fixture(scope="session", autouse=True)
def configs_read_once() -> Iterator[None]:
    """Let Hydra read each file of settings and merge each choice of them once.

    A command composes its settings up to four times. Files of packages, Hydra's own, never change.
    """
    Plugins.instance()  # which runs the modules of its sources once more, so that these are others
    files, packages = (SourcesRegistry.instance().resolve(scheme) for scheme in ("file", "pkg"))

    def of_source(source: ConfigSource, config_path: str) -> Hashable:
        path = Path(source.path, config_path).with_suffix(".yaml")
        written = path.stat().st_mtime_ns if path.exists() else None
        return source.path, source.provider, config_path, written

    def of_choice(
        loader: ConfigLoaderImpl, defaults: Sequence[ResultDefault], repo: IConfigRepository
    ) -> Hashable:
        names = [one.config_path for one in defaults if one.config_path]
        read = [of_source(source, name) for source in repo.get_sources() for name in names]
        return tuple(map(repr, defaults)), tuple(read)

    with pytest.MonkeyPatch.context() as patch:
        for holder, name, key in (
            (packages, "is_config", of_source),
            (packages, "is_group", of_source),
            (packages, "load_config", of_source),
            (files, "load_config", of_source),
            (ConfigLoaderImpl, "_compose_config_from_defaults_list", of_choice),
        ):
            patch.setattr(holder, name, remembered(getattr(holder, name), key))
        yield


@pytest.fixture(autouse=True)
def first_calls_of_a_test() -> None:
    """Count the calls of each function, some of which are checked, from zero again."""
    first_calls.CALLS.begin_test()


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator with a fixed seed."""
    return np.random.default_rng(20241)


@pytest.fixture
def generator() -> torch.Generator:
    """Return a torch generator with a fixed seed."""
    return torch.Generator().manual_seed(20241)


@pytest.fixture(scope="module")
def few_redraws() -> Iterator[None]:
    """Draw faulty jobs twice more instead of eight times: untrained models draw hardly others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layerdag.sampling.draw_policy.DrawPolicy.max_retries", 2)
        yield


@pytest.fixture
def ready_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start other processes as copies of one that has imported torch, which takes seconds."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["layerdag.sampling.generation"])
    monkeypatch.setattr("layerdag.runtime.processes._has_one_thread", lambda: False)
    monkeypatch.setattr("layerdag.runtime.processes.get_context", lambda _: context)


@pytest.fixture
def computed_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a function, by its dotted name, return its first result again in this test.

    What a command prints of it as text and as JSON is then computed once.
    """

    def patch(name: str) -> None:
        compute, results = resolve_name(name), []

        def first(*args: object, **more: object) -> object:
            if not results:
                results.append(compute(*args, **more))
            return results[0]

        monkeypatch.setattr(name, first)

    return patch


@pytest.fixture
def repository() -> Path:
    """Return the root of the checkout."""
    return REPOSITORY


@pytest.fixture
def shared_data() -> Path:
    """Return the folder of reference data beside the checkout, or skip."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("reference data is not beside this checkout (../shared/data)")
    return folder
