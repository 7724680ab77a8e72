"""The code blocks of README and docs, with what a comment before a block says of its test.

Every block of ``bash`` and ``python`` runs as it stands, unless a comment right before it says
otherwise; the comment does not show on the page::

    <!-- docs-test
    before: layerdag sample num=2 out=samples
    short: training.max_seconds=600 => training.max_steps=2
    -->

``before`` is run first, for what the reader has and the page does not show. ``short`` replaces a
part of the block that would take long. ``skip`` gives the reason why a block is not run at all.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "data" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
RUN = ("bash", "python")
_FENCE = re.compile(r"^```(.*)$")
_COMMENT = re.compile(r"<!-- docs-test\n(.*?)\n-->\n*$", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: File.
        line: Where it begins, from 1.
        language: The words behind the fence.
        text: What stands on the page.
        before: What is run first, line by line.
        short: (old, new) of each replacement.
        skip: Why it is not run, or "".
    """

    page: Path
    line: int
    language: str
    text: str
    before: tuple[str, ...] = ()
    short: tuple[tuple[str, str], ...] = ()
    skip: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def program(self) -> str:
        """Return what the test runs.

        Raises:
            ValueError: If the block does not hold what is to be replaced.
        """
        text = self.text
        for old, new in self.short:
            if old not in text:
                raise ValueError(f"{self}: there is no {old!r} to shorten")
            text = text.replace(old, new)
        return "\n".join((*self.before, text))


@dataclass
class _Open:
    line: int
    language: str
    comment: dict[str, list[str]]
    lines: list[str] = field(default_factory=list)


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    return parse(page, page.read_text())


def parse(page: Path, text: str) -> list[Block]:
    """Return the fenced blocks of the text of a page in order.

    Raises:
        ValueError: If a comment says something unknown.
    """
    found, open_block, before = [], None, ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if open_block is None and fence:
            open_block = _Open(number, fence[1].strip(), _comment(page, number, before))
        elif open_block is not None and fence:
            found.append(_closed(page, open_block))
            open_block, before = None, ""
        elif open_block is not None:
            open_block.lines.append(line)
        else:
            before += line + "\n"
    return found


def loose_commands(page: Path) -> list[str]:
    """Return lines that look like commands but stand in no block that is run or skipped aloud."""
    text = page.read_text()
    word = r"(?:\$ )?(?:layerdag|python3?|make|pip|torchrun) \S"
    inside = [
        line
        for block in blocks(page)
        if block.language not in RUN and not block.skip
        for line in block.text.splitlines()
        if re.match(word, line)
    ]
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    comments = re.sub(r"<!--.*?-->", "", outside, flags=re.DOTALL)
    indented = re.compile(
        r"^(?: {4}|\t)(?:\$ )?(?:layerdag|python3?|make|pip|torchrun) \S.*$", re.M
    )
    return inside + indented.findall(comments)


def _comment(page: Path, line: int, before: str) -> dict[str, list[str]]:
    """Return what the comment right before a block says, by word."""
    said: dict[str, list[str]] = {"before": [], "short": [], "skip": []}
    match = _COMMENT.search(before)
    for entry in match[1].splitlines() if match else ():
        word, _, rest = entry.partition(": ")
        if word not in said or not rest:
            raise ValueError(f"{page.name}:{line}: {entry!r} is none of {', '.join(said)}")
        said[word].append(rest)
    return said


def _closed(page: Path, block: _Open) -> Block:
    """Return the block as it stands on the page."""
    said = block.comment
    pairs = [entry.partition(" => ")[::2] for entry in said["short"]]
    return Block(
        page, block.line, block.language, "\n".join(block.lines) + "\n", tuple(said["before"]),
        tuple((old, new) for old, new in pairs), " ".join(said["skip"]),
    )  # fmt: skip
