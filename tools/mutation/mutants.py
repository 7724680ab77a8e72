"""Single faults in Python modules: mutmut's operators, applied one at a time.

Left alone is what no test should or can tell apart: prose (docstrings, strings with a space in
them), annotations, decorators, ``cast``, labels of progress bars, and the arguments ``strict`` and
``encoding``, which guard what holds anyway.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

NEVER_CALLS = {"len", "isinstance", "cast", "track"}
NEVER_ARGUMENTS = {"strict", "encoding"}
STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)


@dataclass(frozen=True, eq=False)
class Site:
    """A module with what places a mutant in it.

    Attributes:
        path: File, from the root of the checkout.
        tree: Its syntax tree.
        text: Its lines.
    """

    path: str
    tree: cst.Module
    text: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Mutant:
    """One fault.

    Attributes:
        site: The module.
        function: Outermost function around the fault as in ``__qualname__``; "" at module level.
        lines: First and last line of the statement around the fault.
        operator: Name of the operator.
        original: Node that is replaced.
        replacement: Node that takes its place.
        repeat: How often the same fault occurred before in the same statements.
    """

    site: Site
    function: str
    lines: tuple[int, int]
    operator: str
    original: cst.CSTNode
    replacement: cst.CSTNode
    repeat: int

    @property
    def path(self) -> str:
        """File, from the root of the checkout."""
        return self.site.path

    @cached_property
    def change(self) -> str:
        """The fault as "before -> after", on one line."""
        before, after = (_text(self.site, n) for n in (self.original, self.replacement))
        return f"{before} -> {after}"

    @property
    def statement(self) -> str:
        """The statement around the fault, of a compound one without its body."""
        first, last = self.lines
        return " ".join(" ".join(self.site.text[first - 1 : last]).split())

    def key(self) -> str:
        """Return a name that survives moves of the function and changes of other statements."""
        parts = (self.function, self.statement, self.operator, self.change, self.repeat)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def source(self) -> str:
        """Return the module with the fault."""
        changed = self.site.tree.deep_replace(self.original, self.replacement)
        assert isinstance(changed, cst.Module)
        return changed.code


def _text(site: Site, node: cst.CSTNode) -> str:
    """Return the code of a node on one line."""
    return " ".join(site.tree.code_for_node(node).split())


def find_mutants(root: Path, path: str) -> list[Mutant]:
    """Return every mutant of one module.

    Args:
        root: Root of the checkout.
        path: The module, from there.
    """
    text = (root / path).read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(text))
    finder = _Finder(Site(path, wrapper.module, tuple(text.splitlines())))
    wrapper.visit(finder)
    return finder.found


class _Finder(cst.CSTVisitor):
    """Collects mutants while it keeps track of the function and the statement it is in."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site
        self.found: list[Mutant] = []
        self._names: list[tuple[str, bool]] = []
        self._statements: list[cst.CSTNode] = []
        self._seen: dict[tuple[str, str, str, str], int] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _is_skipped(node):
            return False
        if isinstance(node, STATEMENTS):
            self._statements.append(node)
        for operator, replacement in _replacements(node):
            self._add(node, operator, replacement)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self._statements and self._statements[-1] is original_node:
            self._statements.pop()

    def on_visit_attribute(self, node: cst.CSTNode, attribute: str) -> None:
        # Defaults and bases are evaluated outside, so a name counts from the body on.
        if attribute == "body" and isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append((node.name.value, isinstance(node, cst.FunctionDef)))

    def on_leave_attribute(self, original_node: cst.CSTNode, attribute: str) -> None:
        if attribute == "body" and isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._names.pop()

    def _add(self, node: cst.CSTNode, operator: str, replacement: cst.CSTNode) -> None:
        function = self._function()
        draft = Mutant(self.site, function, self._lines(), operator, node, replacement, 0)
        same = (function, draft.statement, operator, draft.change)
        repeat = self._seen[same] = self._seen.get(same, -1) + 1
        self.found.append(
            Mutant(self.site, function, draft.lines, operator, node, replacement, repeat)
        )

    def _function(self) -> str:
        """Return the qualified name of the outermost function, "" outside of functions."""
        for depth, (_, is_function) in enumerate(self._names):
            if is_function:
                return ".".join(name for name, _ in self._names[: depth + 1])
        return ""

    def _lines(self) -> tuple[int, int]:
        """Return the lines of the innermost statement, of a compound one without its body."""
        statement = self._statements[-1]
        where = self.get_metadata(PositionProvider, statement)
        last = where.end.line
        body = getattr(statement, "body", None)
        if isinstance(body, cst.BaseSuite):
            last = max(self.get_metadata(PositionProvider, body).start.line - 1, where.start.line)
        return where.start.line, last


def _replacements(node: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode]]:
    """Yield each operator that applies to a node, with what it makes of it."""
    for kind, operator in mutation_operators:
        if isinstance(node, kind) and not _is_prose(node):
            for replacement in operator(node):
                if _guards(node) != _guards(replacement):
                    continue
                yield operator.__name__.removeprefix("operator_"), replacement


def _guards(node: cst.CSTNode) -> list[cst.Arg]:
    """Return the arguments of a call that are left alone."""
    return [arg for arg in node.args if _is_guard(arg)] if isinstance(node, cst.Call) else []


def _is_guard(node: cst.CSTNode) -> bool:
    """Return whether a node is an argument that is left alone."""
    return isinstance(node, cst.Arg) and (
        node.keyword is not None and node.keyword.value in NEVER_ARGUMENTS
    )


def _is_prose(node: cst.CSTNode) -> bool:
    """Return whether a node is text for people."""
    return isinstance(node, cst.SimpleString) and " " in node.value


def _is_skipped(node: cst.CSTNode) -> bool:
    """Return whether a node and all below are left alone."""
    if _is_guard(node) or isinstance(
        node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom
    ):
        return True
    if isinstance(node, cst.Expr):
        return isinstance(node.value, cst.BaseString)
    if isinstance(node, cst.If) and isinstance(node.test, cst.Name):
        return node.test.value == "TYPE_CHECKING"
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name)
        and node.func.value in NEVER_CALLS
    )
