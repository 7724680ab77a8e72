"""Does a test notice? Faults inside functions are put into running code; others need an import.

Torch, the package and its tests are imported once. For each fault the process forks, the child
exchanges the code object of the broken function, runs the tests that cover it and reports. What
runs at import (constants, defaults, class bodies) is broken before the package is imported.
"""

import ctypes
import functools
import gc
import importlib.machinery
import inspect
import os
import shutil
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from _pytest.runner import runtestprotocol
from coverage_map import pytest_arguments
from workspace import run_in_child

SURVIVED, KILLED = 0, 1
MISFIT = 69
"""Exit code for a fault that cannot be put into running code."""


class Fault(Protocol):
    """What ``Mutant`` and ``CMutant`` share."""

    @property
    def path(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def lines(self) -> tuple[int, int]: ...
    @property
    def operator(self) -> str: ...
    @property
    def change(self) -> str: ...
    @property
    def statement(self) -> str: ...
    def key(self) -> str: ...
    def source(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Case:
    """One fault and what to try on it.

    Attributes:
        fault: The fault.
        tests: Node ids, quickest first.
        seconds: Their usual processor time.
    """

    fault: Fault
    tests: tuple[str, ...]
    seconds: float

    def limit(self) -> float:
        """Return the processor seconds after which the fault counts as noticed."""
        return 10 + 4 * self.seconds


@dataclass(frozen=True)
class Verdict:
    """What came of a case.

    Attributes:
        outcome: "survived", "killed", "timeout", "crash" or "misfit".
        killer: Test that noticed, "" if none or unknown.
    """

    outcome: str
    killer: str = ""


class Server:
    """Pytest plugin: instead of the tests it runs the cases, each in a fork of this process.

    Args:
        tree: The copy of the checkout.
        cases: Cases to judge.
        record: Called with each case and its verdict.
        prepare: Puts a fault in C into the copy; False if it does not compile. None for Python.
    """

    def __init__(
        self,
        tree: Path,
        cases: Sequence[Case],
        record: Callable[[Case, Verdict], None],
        prepare: Callable[[Case], bool] | None = None,
    ) -> None:
        self.tree, self.cases, self.record, self.prepare = tree, cases, record, prepare

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Let the search for functions see what the tests' own hook has set aside."""
        gc.unfreeze()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        live = _live_functions(self.tree)
        caches = [o for o in gc.get_objects() if type(o) is functools._lru_cache_wrapper]
        caches = [c for c in caches if str(c.__module__).startswith("layerdag")]
        gc.freeze()
        for case in self.cases:
            if self.prepare is not None and not self.prepare(case):
                self.record(case, Verdict("invalid"))
                continue
            chosen = [items[name] for name in case.tests if name in items]
            self.record(case, self._judge(case, chosen, live, caches))
        return True

    def _judge(
        self,
        case: Case,
        items: list[pytest.Item],
        live: dict[tuple[str, str], list[types.FunctionType]],
        caches: list[functools._lru_cache_wrapper],
    ) -> Verdict:
        """Fork, break, run."""
        reading, writing = os.pipe()

        def task() -> int:
            for cache in caches:
                cache.cache_clear()
            if self.prepare is not None:
                _load_kernels_anew(self.tree)
            elif not _exchange(self.tree, case.fault, live):
                return MISFIT
            for item, following in zip(items, [*items[1:], None], strict=True):
                if any(r.failed for r in runtestprotocol(item, log=False, nextitem=following)):
                    os.write(writing, item.nodeid.encode())
                    return KILLED
            return SURVIVED

        code = run_in_child(task, case.limit())
        os.close(writing)
        with os.fdopen(reading) as stream:
            return Verdict(_outcome(code), stream.read())


def _outcome(code: int) -> str:
    """Return the name of an exit code."""
    if code in (SURVIVED, KILLED, MISFIT):
        return {SURVIVED: "survived", KILLED: "killed", MISFIT: "misfit"}[code]
    return "timeout" if code in (-24, -14, -9) else "crash"


def serve(tree: Path, server: Server) -> int:
    """Collect all tests of the copy and run a server's cases."""
    return pytest.main([*pytest_arguments(tree), "tests"], plugins=[server])


def judge_afresh(tree: Path, case: Case) -> Verdict:
    """Judge a fault by importing the package with it, in a fork of a process that never has."""
    reading, writing = os.pipe()

    def task() -> int:
        _replace_source(str(tree / case.fault.path), case.fault.source().encode())
        files = sorted({name.split("::")[0] for name in case.tests})
        plugin = _Chosen(case.tests, writing)
        code = pytest.main([*pytest_arguments(tree), "-x", *files], plugins=[plugin])
        # 5: no test is left, since the fault renamed what was chosen.
        return SURVIVED if code in (0, 5) else KILLED

    code = run_in_child(task, case.limit() + 60)
    os.close(writing)
    with os.fdopen(reading) as stream:
        return Verdict(_outcome(code), stream.read())


class _Chosen:
    """Pytest plugin: keeps chosen tests only and tells which one failed."""

    def __init__(self, tests: Sequence[str], writing: int) -> None:
        self.rank = {name: i for i, name in enumerate(tests)}
        self.writing = writing

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self.rank]
        items[:] = sorted(kept, key=lambda item: self.rank[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self.writing, report.nodeid.encode())


def _live_functions(tree: Path) -> dict[tuple[str, str], list[types.FunctionType]]:
    """Return the package's function objects by file and qualified name."""
    found: dict[tuple[str, str], list[types.FunctionType]] = {}
    for thing in gc.get_objects():
        # Asking isinstance would wake lazy modules, which warn.
        if type(thing) is types.FunctionType:
            code = thing.__code__
        else:
            continue
        if code.co_filename.startswith(str(tree)):
            found.setdefault((code.co_filename, code.co_qualname), []).append(thing)
    return found


def _exchange(
    tree: Path, fault: Fault, live: dict[tuple[str, str], list[types.FunctionType]]
) -> bool:
    """Put a fault into the function objects that hold the broken code; False if there are none."""
    file = str(tree / fault.path)
    sound = _codes((tree / fault.path).read_text(encoding="utf-8"), file, fault.function)
    broken = _codes(fault.source(), file, fault.function)
    functions = live.get((file, fault.function), [])
    # Functions of one name, such as a property's getter and setter, keep their order.
    lines = sorted({function.__code__.co_firstlineno for function in functions})
    if not len(sound) == len(broken) == len(lines):
        return False
    done = False
    for before, after in zip(sound, broken, strict=True):
        old, new = list(_walk(before)), list(_walk(after))
        if [code.co_qualname for code in old] != [code.co_qualname for code in new]:
            return False
        # Functions inside, such as the wrapper that a decorator returned, live on their own.
        for inside, changed in zip(old, new, strict=True):
            if inside == changed:
                continue
            for function in live.get((file, inside.co_qualname), []):
                if function.__code__.co_firstlineno != inside.co_firstlineno:
                    continue
                if function.__code__.co_freevars != changed.co_freevars:
                    return False
                function.__code__ = changed
                done = True
    return done


def _load_kernels_anew(tree: Path) -> None:
    """Let the next call of the kernels load the library that was just built.

    The system takes a library of the same name for the one that is loaded already.
    """
    built = next(tree.glob("layerdag/_native*.so"))
    other = tree / "build" / f"kernels-{os.getpid()}.so"
    shutil.copy(built, other)
    load = ctypes.CDLL

    def fresh(name: str, *args: Any, **kwargs: Any) -> ctypes.CDLL:
        return load(str(other) if name == str(built) else name, *args, **kwargs)

    ctypes.CDLL = fresh  # type: ignore[misc, assignment]


def _codes(source: str, file: str, name: str) -> list[types.CodeType]:
    """Return the code objects of a qualified name, in the order of their lines."""
    top = compile(source, file, "exec", dont_inherit=True)
    found = [code for code in _walk(top) if code.co_qualname == name]
    return sorted(found, key=lambda code: code.co_firstlineno)


def _walk(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and all inside it."""
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _walk(constant)


def _replace_source(file: str, text: bytes) -> None:
    """Let this process import ``file`` as if it held ``text``, past every cache of bytecode."""
    loader = importlib.machinery.SourceFileLoader
    get_data, path_stats = loader.get_data, loader.path_stats

    def stats(self: importlib.machinery.SourceFileLoader, path: str) -> dict[str, float]:
        return {"mtime": 0, "size": len(text)} if path == file else dict(path_stats(self, path))

    def data(self: importlib.machinery.SourceFileLoader, path: str) -> bytes:
        return text if path == file else get_data(self, path)

    # setattr, for these are the loader of every module, not of one of ours.
    for name, method in (("path_stats", stats), ("get_data", data), ("set_data", _keep_nothing)):
        setattr(loader, name, method)


def _keep_nothing(*args: object, **kwargs: object) -> None:
    """Write no bytecode."""
