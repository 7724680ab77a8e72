import re
from pathlib import Path

from layerdag.codec import repair_in_words


def test_every_repair_that_the_docs_list_has_words(repository: Path) -> None:
    table = (
        (repository / "docs" / "reference" / "attributes.md")
        .read_text()
        .partition("| repair | what was")[2]
    )
    rows = re.findall(r"^\| (`.*?`) \|", table, flags=re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) > 9
    for name in names:
        assert repair_in_words(name) != name.replace("_", " ")


def test_every_repair_in_the_code_has_words(repository: Path) -> None:
    code = "".join(path.read_text() for path in (repository / "layerdag").rglob("*.py"))
    names = set(re.findall(r'repairs\["(\w+)"\]|_become_work\(node, "(\w+)"\)', code))
    assert len(names) > 7
    for name in (first or second for first, second in names):
        assert "_" not in repair_in_words(name)
        assert repair_in_words(name) != name.replace("_", " "), name
