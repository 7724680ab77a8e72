"""README and docs: short, without targets and diary, decimals whole, lines that fit a screen."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
USER_PAGES = (README, *sorted(p for p in DOCS.rglob("*.md") if "dev" not in p.parts))
DEV_PAGES = tuple(DOCS / "dev" / name for name in ("decisions.md", "design.md"))
PAGES = (*USER_PAGES, ROOT / "CONTRIBUTING.md", *DEV_PAGES)
README_LINES = 120
USER_LINES = 3600
LINE = 140
DIARY = re.compile(
    r"(?<!progress )(?<!error )\bbars?\b(?= ?[\d.:]|[,;) ]|$)|\bmissed\b|\(before\b"
    r"|\bbefore \.?\d[^|]*\bnow\b"
)
DECIMAL = re.compile(r"(?<![\w.\\/])\.\d")
FENCE = re.compile(r"^```.*?^```$|<!--.*?-->|^ {4}.*?$", re.M | re.S)
CODE = re.compile(r"`[^`]*`")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_page_has_no_faults(page):
    assert list(faults(page.read_text())) == []


def test_pages_are_few_and_short():
    assert lines_of([README]) <= README_LINES
    assert lines_of(USER_PAGES) <= USER_LINES
    assert {path.name for path in (DOCS / "dev").iterdir()} == {
        "design.md",
        "decisions.md",
        "defaults.md",
    }
    assert lines_of([DOCS / "dev" / "decisions.md"]) <= 300


def test_lines_are_counted(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n" * 121)
    assert lines_of([page, page]) == 242


@pytest.mark.parametrize(
    "text",
    [
        "0.93 (bar 0.95)",
        "| bar, published |",
        "the bar is met",
        "bar 5 min: missed by 22 s",
        "1.4 (before 1.3)",
        "before 0.05, now 0.04",
        "an AUROC of .60",
        "[-.30, 1]",
        "word " * 40,
    ],
)
def test_a_fault_is_found(text):
    assert list(faults(f"# Page\n\n{text}\n"))


@pytest.mark.parametrize(
    "text",
    [
        "A progress bar; error bars.",
        "Warm up before you measure, now and then.",
        "0.60, 1.5, version 0.0.4, `.5`, `PREFIX.0.et`",
        "```bash\necho .5 bar 3 " + "x" * 200 + "\n```",
        "| a | " + "x" * 200 + " |",
    ],
)
def test_what_is_right_is_no_fault(text):
    assert list(faults(f"# Page\n\n{text}\n")) == []


def faults(text: str) -> Iterator[str]:
    """Yield each line of prose or of a table that breaks a rule, with the rule."""
    prose = FENCE.sub("", text)
    for line in prose.splitlines():
        plain = CODE.sub("", line)
        if DIARY.search(plain):
            yield f"target or diary: {line}"
        if DECIMAL.search(plain):
            yield f"decimal without a leading zero: {line}"
        if len(line) > LINE and not line.startswith(("|", "![")):
            yield f"more than {LINE} characters: {line}"


def lines_of(pages: list[Path] | tuple[Path, ...]) -> int:
    """Return the number of lines of pages together."""
    return sum(len(page.read_text().splitlines()) for page in pages)
