"""How much memory is left: the least of what machine, container and process allow."""

import resource
from pathlib import Path

import pytest

from layerdag._runtime import _memory as memory, memory_left


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch):
    """Let the three sources say what a test wants; None is "does not say"."""

    def tell(free: int | None, group: int | None, process: list[int]) -> int:
        monkeypatch.setattr(memory, "_free", lambda: free)
        monkeypatch.setattr(memory, "_group_left", lambda: group)
        monkeypatch.setattr(memory, "_process_left", lambda: process)
        return memory_left()

    return tell


@pytest.mark.parametrize(
    ("free", "group", "process", "expected"),
    [
        (10, 20, [30], 10),
        (30, 10, [20], 10),
        (30, 20, [10, 15], 10),
        (None, None, [7], 7),
        (5, -3, [], 0),  # a container above its limit leaves nothing
        (None, None, [], 4 << 30),
    ],
)
def test_the_least_that_is_known_counts(told, free, group, process, expected) -> None:
    assert told(free, group, process) == expected


def test_tables_of_the_kernel_are_read_in_bytes(tmp_path: Path) -> None:
    table = tmp_path / "meminfo"
    table.write_text("MemTotal:  16 kB\nMemAvailable:   3 kB\nHugePages_Total:  7\nodd line here\n")
    assert memory._table(table) == {"MemTotal": 16 << 10, "MemAvailable": 3 << 10}
    table.write_text("MemTotal: many kB\n")
    assert memory._table(table) == {}
    assert memory._table(tmp_path / "none") == {}


def test_a_limit_of_max_is_none(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("4096\n")
    assert memory._number(tmp_path / "memory.max") is None
    assert memory._number(tmp_path / "memory.current") == 4096


def test_a_machine_without_proc_tells_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_table", lambda path: {})
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}
    monkeypatch.setattr(memory.os, "sysconf", pages.__getitem__)
    assert memory._free() == 4_096_000

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(memory.os, "sysconf", unknown)
    assert memory._free() is None


def test_the_limits_of_the_process_count_less_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_AS: 10_000, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], -1))
    monkeypatch.setattr(memory, "_table", lambda path: {"VmSize": 3_000, "VmData": 1_000})
    assert memory._process_left() == [7_000]
    limits[resource.RLIMIT_DATA] = 1_500
    assert memory._process_left() == [7_000, 500]


@pytest.mark.parametrize(
    ("most", "used"),
    [
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ],
)
def test_both_versions_of_control_groups_are_read(monkeypatch, most: str, used: str) -> None:
    root = Path("/sys/fs/cgroup")
    known = {root / most: 1000, root / used: 300}
    monkeypatch.setattr(memory, "_number", known.get)
    assert memory._group_left() == 700
    monkeypatch.setattr(memory, "_number", {root / most: 1000}.get)
    assert memory._group_left() is None
