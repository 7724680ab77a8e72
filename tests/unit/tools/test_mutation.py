"""The tool that breaks the source, on small sources of its own."""

import gc
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="mutmut comes with the extra 'mutation'")

SOURCE = '''"""A module."""
LIMIT = 3


class Box:
    """A box."""

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def size(self) -> int:
        """Size."""
        return self._size + 1

    @size.setter
    def size(self, value: int) -> None:
        self._size = value + 2


def fits(box: Box) -> bool:
    """Return whether a box fits."""
    if box.size > LIMIT:
        raise ValueError("the box is too large")
    return True


def larger(function):
    """Return a function of a box that gives 5 more."""

    def called(box: Box) -> int:
        return function(box) + 5

    return called


area = larger(lambda box: box.size)
'''


@pytest.fixture
def tool(repository, monkeypatch) -> Path:
    folder = repository / "tools" / "mutation"
    monkeypatch.syspath_prepend(str(folder))
    for name in ("judge", "mutants", "c_mutants", "coverage_map", "sampling", "report"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


@pytest.fixture
def module(tmp_path) -> types.ModuleType:
    """Return the module as imported from ``box.py``."""
    (tmp_path / "box.py").write_text(SOURCE)
    made = types.ModuleType("box")
    exec(compile(SOURCE, str(tmp_path / "box.py"), "exec"), made.__dict__)
    return made


def changes(path: Path, tool: Path) -> dict[str, object]:
    from mutants import find_mutants

    return {f"{m.function}: {m.change}": m for m in find_mutants(path, "box.py")}


def test_faults_are_those_of_code_and_not_of_prose(tool, module, tmp_path):
    found = changes(tmp_path, tool)
    wanted = {": 3 -> 4", "fits: True -> False", "Box.size: 2 -> 3", "fits: > LIMIT -> >= LIMIT"}
    assert wanted <= found.keys()
    assert not any("too large" in name and "XX" in name for name in found)
    assert not any("int ->" in name for name in found)


def test_a_fault_of_a_setter_reaches_objects_that_exist_and_spares_the_getter(
    tool, module, tmp_path
):
    from judge import _exchange, _live_functions

    box = module.Box(1)
    fault = changes(tmp_path, tool)["Box.size: 2 -> 3"]
    assert _exchange(tmp_path, fault, _live_functions(tmp_path))
    assert box.size == 2
    box.size = 1
    assert box.size == 1 + 3 + 1


def test_a_fault_inside_a_wrapper_reaches_the_functions_that_are_wrapped_already(
    tool, module, tmp_path
):
    from judge import _exchange, _live_functions

    fault = changes(tmp_path, tool)["larger: 5 -> 6"]
    assert module.area(module.Box(1)) == 2 + 5
    assert _exchange(tmp_path, fault, _live_functions(tmp_path))
    assert module.area(module.Box(1)) == 2 + 6


def test_functions_that_the_search_for_cycles_leaves_alone_are_found(tool, module, tmp_path):
    from judge import Server, _live_functions

    gc.freeze()
    assert not _live_functions(tmp_path)
    Server(tmp_path, (), lambda *_: None).pytest_collection_finish()
    assert _live_functions(tmp_path)
    gc.freeze()


def test_the_file_that_mirrors_a_module_comes_first_among_those_imported(tool):
    from coverage_map import CoverageMap
    from sampling import FILES_IMPORTED, _in_few_files

    others = [f"tests/unit/test_{i}.py::test" for i in range(FILES_IMPORTED)]
    mirror = "tests/unit/box/test_box.py"
    known = CoverageMap(seconds=dict.fromkeys([*others, f"{mirror}::a", f"{mirror}::b"], 1.0))
    found = _in_few_files({*others, f"{mirror}::a"}, known, mirror)
    assert f"{mirror}::a" in found
    assert len(found) == FILES_IMPORTED


def test_a_sample_does_not_change_with_code_around_it(tool, module, tmp_path):
    from mutants import find_mutants
    from sampling import drawn

    before = {f.key() for f in drawn(find_mutants(tmp_path, "box.py"), 4, seed=1)}
    (tmp_path / "box.py").write_text("\n\n" + SOURCE)
    assert {f.key() for f in drawn(find_mutants(tmp_path, "box.py"), 4, seed=1)} == before


def test_faults_in_c_leave_comments_pointers_and_directives(tool, tmp_path):
    from c_mutants import find_c_mutants

    (tmp_path / "a.c").write_text(
        "#define N 3 + 4\n/* 1 + 2 */\nstatic int f(const int *x) {\n"
        "    return x->a * 2 < -1; /* 5 */\n}\n"
    )
    found = [m.source().splitlines()[3].split(";")[0] for m in find_c_mutants(tmp_path, "a.c")]
    assert found == [
        "    return x->a + 2 < -1",
        "    return x->a * 3 < -1",
        "    return x->a * 2 <= -1",
        "    return x->a * 2 < -2",
    ]


def test_the_interval_of_the_score_is_wilsons(tool):
    from report import wilson

    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-3)
    assert wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-3)
