"""The plan of the package: what may import what, and what a room hands out."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest
from forked import exit_code_without_package
from imports import (
    PACKAGE,
    ROOT,
    face,
    files_named,
    files_of,
    imported,
    package_of,
    packages,
    sources,
)

import layerdag

PACKAGES = sorted(packages() - {"layerdag"})
FACES = [name for name in PACKAGES if face(name)]
WITHOUT_TORCH = (
    "graph", "traces", "codec", "validation", "differences", "simulator", "workloads", "runtime",
    "serving", "kinds", "hardware",
)  # fmt: skip
HEAVY = ("torch", "scipy", "matplotlib", "sklearn", "networkx")
COMMANDS = sorted(path.stem for path in (PACKAGE / "cli/commands").glob("[a-z]*.py"))


def file_graph(trees: Mapping[str, ast.AST]) -> nx.DiGraph:
    """Return the files with an arrow to each file that they import; faces are left out."""
    graph = nx.DiGraph()
    for name, tree in trees.items():
        if name not in packages():
            graph.add_node(name)
            graph.add_edges_from((name, to) for to in files_of(name, tree) - packages())
    return graph


def package_graph(trees: Mapping[str, ast.AST]) -> nx.DiGraph:
    """Return the folders with an arrow to each folder that one of their files imports from."""
    graph = nx.DiGraph()
    for a, b in file_graph(trees).edges:
        if package_of(a) != package_of(b) and "layerdag" not in (package_of(a), package_of(b)):
            graph.add_edge(package_of(a), package_of(b))
    return graph


def cycles(graph: nx.DiGraph) -> list[list[str]]:
    return [sorted(found) for found in nx.strongly_connected_components(graph) if len(found) > 1]


def test_files_form_no_cycle():
    assert cycles(file_graph(sources())) == []


def test_strings_and_annotations_close_no_cycle():
    graph = file_graph(sources())
    for name, tree in sources().items():
        if name not in packages():
            graph.add_edges_from((name, to) for to in files_named(name, tree) - packages())
    assert cycles(graph) == []


def test_packages_form_no_cycle():
    assert cycles(package_graph(sources())) == []


def test_a_planted_cycle_of_packages_is_found():
    planted = ast.parse("def late():\n    from layerdag.codec.folding import fold")
    trees = {**sources(), "layerdag.graph.topology": planted}
    assert any("layerdag.graph" in cycle for cycle in cycles(package_graph(trees)))


def face_imports(trees: Mapping[str, ast.AST]) -> list[str]:
    """Return the files that import a face: code names the file that defines a name."""
    return [
        f"{name} imports {module}"
        for name, tree in trees.items()
        if name not in packages()
        for module, what in imported(tree)
        if module in packages() and f"{module}.{what}" not in sources() and module != "layerdag"
    ]


def test_code_imports_the_file_that_defines_a_name():
    assert face_imports(sources()) == []


def test_an_import_of_a_face_is_found():
    planted = ast.parse("from layerdag.traces import Trace")
    assert face_imports({"layerdag.codec.folding": planted})


def test_every_package_can_be_imported_by_itself():
    # Backwards, so that no floor finds those below it imported; no order closes a cycle of files.
    def backwards() -> None:
        os.environ["EAGER_IMPORT"] = "1"
        for name in PACKAGES[::-1]:
            importlib.import_module(name)

    assert exit_code_without_package(backwards) == 0


def loaded_by(code: str) -> set[str]:
    """Return the heavy modules that a new process has loaded after ``code``."""
    names = (*HEAVY, "numpy", "hydra")
    told = f"print(*(n for n in {names} if n in sys.modules), file=sys.stderr)"
    script = f"import sys\n{code}\n{told}"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return set(done.stderr.splitlines()[-1].split())


def test_ten_rooms_are_imported_without_torch():
    rooms = [name for name in PACKAGES if name.split(".")[1] in WITHOUT_TORCH]
    files = [n for n in sources() if n.split(".")[1:2] and n.split(".")[1] in WITHOUT_TORCH]
    assert len(rooms) > 8
    code = (
        f"import importlib\nfor name in {sorted({*rooms, *files})!r}: importlib.import_module(name)"
    )
    assert loaded_by(code) <= {"numpy"}


def test_a_user_reads_and_simulates_without_torch():
    names = "read, read_workload, simulate, diff, workload, explore, Cluster, Trace"
    assert not loaded_by(f"from layerdag import {names}") & {"torch", "sklearn", "matplotlib"}
    assert loaded_by("import layerdag") == set()


def test_commands_are_imported_without_torch_and_hydra():
    code = "import importlib\n" + "".join(
        f"importlib.import_module('layerdag.cli.commands.{name}')\n" for name in COMMANDS
    )
    assert loaded_by(code) <= {"numpy"}


@pytest.mark.parametrize("room", FACES)
def test_a_face_is_sorted_and_hands_out_what_its_folder_defines(room):
    names, package = face(room), importlib.import_module(room)
    assert list(names) == sorted(names, key=_place)
    for name in names:
        assert not isinstance(getattr(package, name), ModuleType), f"{room}.{name} is a module"
    beside = {path.stem for path in Path(str(package.__file__)).parent.iterdir()}
    assert not beside & set(names)


@pytest.mark.parametrize("room", PACKAGES)
def test_a_face_imports_its_own_folder_only(room):
    assert ast.get_docstring(sources()[room])
    for module, _ in imported(sources()[room]):
        assert module.rpartition(".")[0] == room


def _place(name: str) -> tuple[int, str]:
    """Constants come first, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@cache
def names_in_use() -> dict[str, set[str]]:
    """Return the names of each folder that another folder, a page or an example uses."""
    found: dict[str, set[str]] = {name: set() for name in PACKAGES}
    for name, tree in sources().items():
        for module, what in _all_imports(tree):
            if package_of(module) in found and package_of(module) != package_of(name):
                found[package_of(module)].add(what)
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("data/*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*.py"),
    ]
    text = "\n".join(path.read_text() for path in pages)
    for room in found:
        here = re.escape(room)
        listed = re.findall(rf"from {here}(?:\.\w+)? import (\([^)]*\)|[^\n]*)", text)
        found[room] |= set(re.findall(r"\w+", " ".join(listed)))
        found[room] |= set(re.findall(rf"\b{here}\.(\w+)", text))
    return found


@pytest.mark.parametrize("room", FACES)
def test_every_name_of_a_face_has_a_user(room):
    assert set(face(room)) - names_in_use()[room] == set()


def _all_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each import, those for annotations only among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), alias.name) for alias in node.names)


def repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_no_two_exported_names_are_equal():
    assert repeated(name for room in FACES for name in face(room)) == set()


def test_files_have_plain_names_and_folders_one_level():
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        assert parts[-1].startswith("__") or not parts[-1].startswith("_"), path
        assert len(parts) <= 3, path


def test_names_at_the_front_door_survive_each_others_import():
    for name in (*PACKAGES, *2 * layerdag.__all__):  # the import of a package sets its name, too
        if name in PACKAGES:
            importlib.import_module(name)
        else:
            assert callable(getattr(layerdag, name)) or name == "__version__", name


def test_the_command_of_the_installed_package_is_a_function():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for target in scripts.values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
