"""What a page, a docstring or a comment names exists: files, and names of the package."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from imports import face

import layerdag

ROOT = Path(__file__).resolve().parents[2]
# Where a relative path may begin, beside the folder of the file that names it.
STARTS = (ROOT, ROOT / "layerdag", ROOT / "docs", ROOT / "configs", ROOT / "tests")
PATH = re.compile(r"(?<![\w./<{$:-])(?:[\w.-]+/)+[\w.-]+\.(?:py|c|h|md|yaml|yml|toml|html|txt)\b")
# Sources of other projects, and what a command makes.
ELSEWHERE = re.compile(
    r"(linux|c10|aten)/|outputs/|release(\.private)?/|(\.\./)?(reference/(cli|api)|examples/\w+)\.md"
)

PAGES = [
    *ROOT.glob("*.md"),
    ROOT / "mkdocs.yml",
    ROOT / "data/README.md",
    *ROOT.glob("docs/**/*.md"),
]
USER_PAGES = [page for page in PAGES if page.parts[-2] != "dev" and page.suffix == ".md"]
NAME = re.compile(r"(?<![\w/.@-])layerdag(?:\.[A-Za-z_]\w*)+(?![\w:-])")
# Groups of entry points, which other packages declare.
GROUPS = {"layerdag.metrics", "layerdag.encoders", "layerdag.generators"}
CODE = ("layerdag", "tools", "benchmarks", "examples", "data")
SOURCES = [
    *(path for room in CODE for path in ROOT.glob(f"{room}/**/*.py")),
    *ROOT.glob("configs/**/*.yaml"),
    *ROOT.glob("native/**/*.[ch]"),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page):
    assert list(missing(page.read_text(), page)) == []


def test_files_that_docstrings_and_comments_name_exist():
    suspects = [path for path in SOURCES if any(missing(path.read_text(), path))]
    lost = {path: list(missing(_prose(path), path)) for path in suspects}
    assert {path: names for path, names in lost.items() if names} == {}


def test_a_file_that_is_not_there_is_found():
    text = "see model/old_name.py and `native/gone.c` (dag/dag.py, outputs/x/page.html)"
    assert list(missing(text, ROOT / "README.md")) == ["model/old_name.py", "native/gone.c"]


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_of_the_package_that_a_user_page_gives_are_public(page):
    names = sorted(set(NAME.findall(page.read_text())))
    assert [name for name in names if name not in GROUPS and not is_public(name)] == []


def test_private_and_misspelled_names_are_found():
    names = (
        "layerdag.simulate",
        "layerdag.training.checkpoint.save_checkpoint",
        "layerdag.errors.TraceError",
    )
    assert all(map(is_public, names))
    wrong = ("layerdag.simulat", "layerdag.datasets._dataset.to_pyg", "layerdag.training.save")
    assert not any(map(is_public, wrong))


def is_public(name: str) -> bool:
    """Whether the stub of the innermost room of a dotted name has what follows in the name."""
    folder, rest = ROOT, name.split(".")
    while rest and not rest[0].startswith("_") and (folder / rest[0] / "__init__.py").exists():
        folder, rest = folder / rest[0], rest[1:]
    if not rest or (rest[0][0] != "_" and (folder / f"{rest[0]}.py").exists()):
        return True
    if folder == ROOT / "layerdag":
        return rest[0] in layerdag.__all__
    return rest[0] in face(".".join(folder.relative_to(ROOT).parts))


def missing(text: str, where: Path) -> Iterator[str]:
    """Yield each path in the text that leads nowhere from any start."""
    for match in PATH.finditer(text):
        name = match[0]
        if not ELSEWHERE.match(name) and not any(
            (start / name).exists() for start in (*STARTS, where.parent)
        ):
            yield name


def _prose(path: Path) -> str:
    """Return docstrings and comments of a Python file, or the whole of another file."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = [ast.get_docstring(n) or "" for n in ast.walk(ast.parse(text)) if isinstance(n, nodes)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join((*docs, *comments))
