"""Turn the notebooks in ``examples`` into pages: text, code, what it prints and draws.

A notebook is a Python script in the percent format, which Jupyter (through jupytext), VS Code and
PyCharm open as one. It is run here, when the site is built.
"""

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """A part of a notebook: Markdown or code."""

    is_text: bool
    source: str


def notebooks() -> list[Path]:
    """Return the scripts in the percent format."""
    return [path for path in sorted(EXAMPLES.glob("*.py")) if _CELL.search(path.read_text())]


def cells(script: str) -> list[Cell]:
    """Return the cells of a script; what stands before the first one belongs to none."""
    parts = _CELL.split(script)[1:]
    found = []
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        is_text = "[markdown]" in head
        source = re.sub(r"^# ?", "", body, flags=re.MULTILINE) if is_text else body
        found.append(Cell(is_text, source.strip("\n")))
    return found


def page(script: Path) -> tuple[str, dict[str, bytes]]:
    """Run a notebook and return its page in Markdown, and its pictures by file name."""
    names: dict[str, object] = {"__name__": "__main__"}
    lines, pictures = [], {}
    for cell in cells(script.read_text()):
        if cell.is_text:
            lines.append(cell.source)
            continue
        lines.append(f"```python\n{cell.source}\n```")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(cell.source, str(script), "exec"), names)
        if printed.getvalue():
            lines.append(f"```text\n{printed.getvalue().rstrip()}\n```")
        for number in plt.get_fignums():
            file = f"{script.stem}-{len(pictures) + 1}.png"
            pictures[file] = _png(plt.figure(number))
            lines.append(f"![Picture {len(pictures)}]({file})")
        plt.close("all")
    source = (
        f"[{script.name}](https://github.com/layerdag/layerdag/blob/main/examples/{script.name})"
    )
    lines.insert(1, f"*A notebook: {source} as it ran when this page was built.*")
    return "\n\n".join(lines) + "\n", pictures


def _png(figure: plt.Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
