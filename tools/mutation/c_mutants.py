"""Single faults in C sources: relations, arithmetic, logic, constants and jumps, by pattern."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "+=": "-=", "-=": "+=", "*=": "+=",
    "<<": ">>", ">>": "<<", "++": "--", "--": "++", "&": "|", "|": "&",
    "break": "continue", "continue": "break",
}  # fmt: skip
# Comments, text and directives come first, so that nothing inside them is found.
TOKEN = re.compile(
    r"(?P<skip>/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
    r"|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*|->|\.\d|\d[\w.]*\.\w*|0[xX][0-9a-fA-F]+\w*)"
    r"|(?P<number>\b\d+\b)|(?P<word>\b(?:break|continue)\b)"
    r"|(?P<operator><<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|\+=|-=|\*=|/=|[-+*/%<>&|])",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class CMutant:
    """One fault.

    Attributes:
        path: File, from the root of the checkout.
        function: Function around it.
        lines: Its line, twice.
        operator: "number", "jump" or "swap".
        change: The line before and after.
        text: The file with the fault.
        repeat: How often the same fault occurred before in the same function.
    """

    path: str
    function: str
    lines: tuple[int, int]
    operator: str
    change: str
    text: str
    repeat: int

    @property
    def statement(self) -> str:
        """The line before."""
        return self.change.partition(" -> ")[0]

    def key(self) -> str:
        """Return a name that survives changes of other functions."""
        parts = (self.function, self.operator, self.change, self.repeat)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def source(self) -> str:
        """Return the file with the fault."""
        return self.text


def find_c_mutants(root: Path, path: str) -> list[CMutant]:
    """Return every mutant inside the functions of one C file."""
    text = (root / path).read_text(encoding="utf-8")
    functions = _functions(text)
    found: list[CMutant] = []
    seen: dict[tuple[str, str, str], int] = {}
    for match in TOKEN.finditer(text):
        function = next((name for name, a, b in functions if a < match.start() < b), None)
        if match["skip"] or function is None or _is_pointer(text, match):
            continue
        for operator, after in _replacements(match):
            mutated = text[: match.start()] + after + text[match.end() :]
            change = _changed_line(text, match, after)
            same = (function, operator, change)
            seen[same] = seen.get(same, -1) + 1
            line = text.count("\n", 0, match.start()) + 1
            found.append(
                CMutant(path, function, (line, line), operator, change, mutated, seen[same])
            )
    return found


def _replacements(match: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Yield the operator's name and the text that takes the place of a token."""
    token = match[0]
    if match["number"]:
        yield "number", str(int(token) + 1)
    elif token in SWAPS:
        yield ("jump" if match["word"] else "swap_op"), SWAPS[token]


def _is_pointer(text: str, match: re.Match[str]) -> bool:
    """Return whether ``*``, ``&``, ``-`` stand before an operand: a pointer, an address, a sign."""
    if match[0] not in "*&-+":
        return False
    before = text[: match.start()].rstrip()
    declared = re.search(r"(?:_t|char|int|double|float|void|const|struct \w+|\*)$", before)
    return bool(declared) or not re.search(r"[\w\])]$", before) or before.endswith("return")


def _changed_line(text: str, match: re.Match[str], after: str) -> str:
    """Return "before -> after" of the line around a token."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    line = text[start : match.start()] + after + text[match.end() : end]
    return f"{text[start:end].strip()} -> {line.strip()}"


def _functions(text: str) -> list[tuple[str, int, int]]:
    """Return the name, first and last character of each function."""
    head = re.compile(r"^[a-z][^\n;{}#]*?\b(\w+)\((?:[^;{}]*)\)\s*\{", re.MULTILINE)
    return [(m[1], m.end(), text.index("\n}", m.end() - 1)) for m in head.finditer(text)]
