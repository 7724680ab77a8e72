"""Write the pages of the site that follow from the code: the command line and the Python API."""

import ast
import contextlib
import importlib
import inspect
import io
import reprlib
from pathlib import Path

import mkdocs_gen_files

import layerdag
from layerdag.cli.main import MODES, ROOM_OF, main

VERBS = [
    " ".join(words)
    for verb in ROOM_OF
    for words in ([verb], *([verb, mode] for mode in MODES.get(verb, ())))
]
PACKAGE = Path(str(layerdag.__file__)).parent


def help_of(words: list[str]) -> str:
    """Return what ``layerdag ... --help`` prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return text.getvalue().rstrip()


def public_names(room: str) -> dict[str, str]:
    """Return the public names of a room with the module that defines each, in order."""
    face = PACKAGE.parent.joinpath(*room.split("."), "__init__.py")
    stub = face.with_suffix(".pyi")
    found = {}
    for node in ast.parse((stub if stub.exists() else face).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            module = f"{room}.{node.module}" if node.level else str(node.module)
            found.update({alias.name: module for alias in node.names})
    return dict(sorted(found.items(), key=lambda pair: pair[0].lower()))


def entry(room: str, module: str, name: str) -> str:
    """Return the section of one public name: signature and docstring, or a constant's value."""
    value = getattr(importlib.import_module(room), name)
    if inspect.isfunction(value) or inspect.isclass(value):
        return f"::: {module}.{name}"
    return f"## {name}\n\n```python\n{name} = {reprlib.repr(value)}\n```"


def purpose(room: str) -> str:
    """Return what the room says it is for."""
    source = PACKAGE.parent.joinpath(*room.split("."), "__init__.py").read_text()
    return ast.get_docstring(ast.parse(source)) or ""


def rooms() -> list[str]:
    """Return the public packages that hand out names, from the top to the leaves."""
    folders = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
    dotted = (".".join(path.relative_to(PACKAGE.parent).parts) for path in folders)
    return [name for name in dotted if ".cli" not in name and public_names(name)]


with mkdocs_gen_files.open("reference/cli.md", "w") as page:
    page.write("# Command line\n\n```text\n" + help_of([]) + "\n```\n")
    for verb in VERBS:
        page.write(f"\n## layerdag {verb}\n\n```text\n{help_of(verb.split())}\n```\n")

with mkdocs_gen_files.open("reference/api.md", "w") as index:
    index.write("# Python\n\nThe names most programs need stand in `layerdag` itself.\n\n")
    for room in rooms():
        index.write(f"- [`{room}`](api/{room}.md)\n")
        with mkdocs_gen_files.open(f"reference/api/{room}.md", "w") as page:
            page.write(f"# {room}\n\n{purpose(room)}\n")
            for name, module in public_names(room).items():
                page.write(f"\n{entry(room, module, name)}\n")
