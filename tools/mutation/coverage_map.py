"""Which tests run which lines: measured once, then again for test files that changed."""

import gzip
import json
import signal
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import coverage
import pytest
from workspace import fingerprint

IMPORT = "import"
"""Context of lines that run while modules are imported and tests collected."""


@dataclass
class CoverageMap:
    """What runs what.

    Attributes:
        source: Fingerprint of everything but the test files.
        files: Fingerprint of each test file.
        seconds: Duration of each test that passed, by node id.
        lines: Contexts of each line of each module: node ids, or ``IMPORT``.
    """

    source: str = ""
    files: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)

    def tests_of(self, path: str, first: int, last: int) -> set[str]:
        """Return the tests that run a line of a range."""
        lines = self.lines.get(path, {})
        found = {name for line in range(first, last + 1) for name in lines.get(line, ())}
        return found & self.seconds.keys()

    def tests_of_module(self, path: str) -> set[str]:
        """Return the tests that run any line of a module."""
        return self.tests_of(path, 1, max(self.lines.get(path, {}), default=0))

    def runs_at_import(self, path: str, first: int, last: int) -> bool:
        """Return whether a line of a range runs while modules are imported."""
        lines = self.lines.get(path, {})
        return any(IMPORT in lines.get(line, ()) for line in range(first, last + 1))

    def quickest(self, tests: set[str], budget: float) -> list[str]:
        """Return tests from the quickest on, until their usual time adds up to ``budget``."""
        chosen: list[str] = []
        total = 0.0
        for name in sorted(tests, key=lambda name: (self.seconds[name], name)):
            total += self.seconds[name]
            if chosen and total > budget:
                break
            chosen.append(name)
        return chosen

    @classmethod
    def read(cls, path: Path) -> "CoverageMap":
        """Read a map; an empty one if there is none."""
        if not path.is_file():
            return cls()
        with gzip.open(path, "rt") as stream:
            data = json.load(stream)
        lines = data.pop("lines")
        return cls(**data, lines={m: {int(k): v for k, v in t.items()} for m, t in lines.items()})

    def write(self, path: Path) -> None:
        """Write the map."""
        with gzip.open(path, "wt", compresslevel=1) as stream:
            json.dump(self.__dict__, stream)


def outdated(
    known: CoverageMap, tree: Path, folders: Sequence[str]
) -> tuple[CoverageMap, list[str]]:
    """Return the part of a map that still holds, and the test files that must be run again."""
    tests = sorted(path for folder in folders for path in tree.glob(f"{folder}/**/test_*.py"))
    rest = [
        *tree.glob("layerdag/**/*.py"), *tree.glob("native/**/*.[ch]"),
        *tree.glob("configs/**/*.yaml"),
        *(p for p in tree.glob("tests/**/*.py") if p not in tests),
    ]  # fmt: skip
    source = fingerprint(rest)
    files = {str(p.relative_to(tree)): fingerprint([p]) for p in tests}
    if source != known.source:
        return CoverageMap(source, files), list(files)
    stale = [name for name, mark in files.items() if known.files.get(name) != mark]
    kept = {n: s for n, s in known.seconds.items() if n.split("::")[0] in files.keys() - {*stale}}
    return CoverageMap(source, files, kept, known.lines), stale


def measure(tree: Path, files: Sequence[str], slowest: float, out: Path) -> int:
    """Run test files under coverage and write what they ran; to be called in a process of its own.

    Returns:
        0; failures of single tests only keep these out of the map.
    """
    probe = coverage.Coverage(
        data_file=None, source=[str(tree / "layerdag")], config_file=False, messages=False
    )
    plugin = _Mapper(probe, slowest)
    probe.start()
    probe.switch_context(IMPORT)
    pytest.main([*pytest_arguments(tree), *files], plugins=[plugin])
    probe.stop()
    data = probe.get_data()
    fresh = CoverageMap(seconds=plugin.seconds())
    for file in data.measured_files():
        path = str(Path(file).relative_to(tree))
        fresh.lines[path] = {
            line: sorted(plugin.resolved(contexts))
            for line, contexts in data.contexts_by_lineno(file).items()
        }
    fresh.write(out)
    return 0


def merged(known: CoverageMap, fresh: CoverageMap) -> CoverageMap:
    """Return a map with fresh tests added."""
    for path, lines in fresh.lines.items():
        there = known.lines.setdefault(path, {})
        for line, contexts in lines.items():
            there[line] = sorted({*there.get(line, ()), *contexts})
    known.seconds.update(fresh.seconds)
    return known


def pytest_arguments(tree: Path) -> list[str]:
    """Return how pytest is started in the copy."""
    early = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    profile = "--hypothesis-profile=mutation"
    return ["--rootdir", str(tree), "-q", "-s", "-p", "no:cacheprovider", "-W", early, profile]


class _Mapper:
    """Pytest plugin: one coverage context for each test, and for each fixture that tests share."""

    def __init__(self, probe: coverage.Coverage, slowest: float) -> None:
        self.probe, self.slowest = probe, slowest
        self._spent: dict[str, float] = {}
        self._failed: set[str] = set()
        self._fixtures: dict[str, set[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.probe.switch_context(item.nodeid)
        started = time.process_time()
        try:
            return (yield)
        finally:
            self._spent[item.nodeid] = time.process_time() - started
            self.probe.switch_context("between tests")

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self) -> Generator[None, object, object]:
        signal.signal(signal.SIGPROF, _too_slow)
        signal.setitimer(signal.ITIMER_PROF, self.slowest)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: Any, request: Any
    ) -> Generator[None, object, object]:
        shared = fixturedef.scope != "function"
        if shared:
            self.probe.switch_context(_name(fixturedef))
        try:
            return (yield)
        finally:
            if shared:
                self.probe.switch_context(request._pyfuncitem.nodeid)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            info = getattr(item, "_fixtureinfo", None)
            for definitions in info.name2fixturedefs.values() if info else ():
                for fixture in definitions:
                    if fixture.scope != "function":
                        self._fixtures.setdefault(_name(fixture), set()).add(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def seconds(self) -> dict[str, float]:
        """Return the processor seconds of each test that passed."""
        return {n: round(s, 3) for n, s in self._spent.items() if n not in self._failed}

    def resolved(self, contexts: list[str]) -> set[str]:
        """Return contexts with a shared fixture replaced by the tests that use it."""
        return {name for context in contexts for name in self._fixtures.get(context, {context})}


def _name(fixture: Any) -> str:
    """Return a context for a fixture."""
    return f"fixture {fixture.baseid}::{fixture.argname}"


def _too_slow(signum: int, frame: object) -> None:
    """End a test that takes too long; no OSError, which the package would handle."""
    pytest.fail("the test is too slow for mutation testing")
