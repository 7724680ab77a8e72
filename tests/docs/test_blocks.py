"""No command of README and docs is left untested without a reason on the page."""

import pytest
from documentation import PAGES, ROOT, RUN, blocks, loose_commands, parse

# Blocks of "python test" are one script per page, which test_tutorials runs.
KNOWN = (*RUN, "python test", "console", "json", "text", "yaml", "csv")
PAGE = ROOT / "page.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_the_page_stands_in_a_block_that_is_run_or_says_why_not(page):
    assert loose_commands(page) == []
    for block in blocks(page):
        assert block.language in KNOWN, f"{block}: a block of {block.language!r}"
        block.program()


def test_a_comment_says_what_comes_first_what_is_shortened_and_why_nothing_runs():
    text = (
        "<!-- docs-test\nbefore: touch a\nshort: num=100 => num=2\n-->\n\n"
        "```bash\nrun num=100\n```\n\n```bash\nplain\n```\n"
        "<!-- docs-test\nskip: takes hours\n-->\n```bash\nlong\n```\n"
    )
    first, second, third = parse(PAGE, text)
    assert first.program() == "touch a\nrun num=2\n"
    assert (second.program(), second.skip) == ("plain\n", "")
    assert third.skip == "takes hours"


def test_what_is_not_there_cannot_be_shortened():
    (block,) = parse(PAGE, "<!-- docs-test\nshort: num=9 => num=2\n-->\n```bash\nrun\n```\n")
    with pytest.raises(ValueError, match=r"page.md:4: there is no 'num=9' to shorten"):
        block.program()


def test_an_unknown_word_in_a_comment_is_an_error():
    with pytest.raises(ValueError, match="is none of before, short, skip"):
        parse(PAGE, "<!-- docs-test\nskp: x\n-->\n```bash\nrun\n```\n")


def test_a_command_outside_a_block_that_runs_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Run\n\n    layerdag info x\n\n```text\nmake test\n```\n```bash\nmake\n```\n")
    assert loose_commands(page) == ["make test", "    layerdag info x"]
