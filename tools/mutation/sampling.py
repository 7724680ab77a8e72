"""Which faults of an area are tried, and on which tests."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from c_mutants import find_c_mutants
from coverage_map import CoverageMap
from judge import Case, Fault
from mutants import Mutant, find_mutants

FILES_IMPORTED = 6
"""Test files that are imported anew for a fault in what runs at import."""

LOGIC = {
    "swap_op", "number", "keywords", "if_exp", "remove_unary_ops", "name", "augmented_assignment",
    "lambda", "match", "jump", "symmetric_string_methods_swap",
    "unsymmetrical_string_methods_swap",
}  # fmt: skip
"""Operators that change a decision or a number; the others drop arguments, values or words."""


def faults_of(tree: Path, area: dict[str, Any]) -> list[Fault]:
    """Return all faults of an area.

    Raises:
        SystemExit: If no module matches.
    """
    without = area.get("without", [])
    paths = {str(p.relative_to(tree)) for pattern in area["modules"] for p in tree.glob(pattern)}
    kept = sorted(p for p in paths if not any(fnmatch(p, pattern) for pattern in without))
    if not kept:
        raise SystemExit(f"No module matches {area['modules']}; repair tools/mutation/areas.toml.")
    found: list[Fault] = []
    for path in kept:
        found += find_mutants(tree, path) if path.endswith(".py") else find_c_mutants(tree, path)
    return found


def drawn(faults: Sequence[Fault], size: int, seed: int) -> list[Fault]:
    """Draw half of ``size`` faults of logic, the rest of others; stable when other code changes."""

    def rank(fault: Fault) -> str:
        return hashlib.sha256(f"{seed} {fault.key()}".encode()).hexdigest()

    logic = sorted((f for f in faults if f.operator in LOGIC), key=rank)
    other = sorted((f for f in faults if f.operator not in LOGIC), key=rank)
    of_logic = min(len(logic), max(size - size // 2, size - len(other)))
    return logic[:of_logic] + other[: size - of_logic]


def is_valid(fault: Fault) -> bool:
    """Return whether a faulty Python module still compiles; C is compiled later."""
    if not isinstance(fault, Mutant):
        return True
    try:
        compile(fault.source(), fault.path, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def case_of(tree: Path, fault: Fault, known: CoverageMap, budget: float) -> Case:
    """Return a fault with the tests that cover it."""
    found = _covering(tree, fault, known)
    if needs_import(fault, known):
        found = _in_few_files(found, known, _mirror(fault))
    tests = known.quickest(found, budget)
    return Case(fault, tuple(tests), sum(known.seconds[name] for name in tests))


def _mirror(fault: Fault) -> str:
    """Return the test file of a module: tests/unit mirrors the package."""
    place = Path(fault.path).relative_to("layerdag")
    return str("tests/unit" / place.with_name(f"test_{place.name.lstrip('_')}"))


def _in_few_files(tests: set[str], known: CoverageMap, mirror: str) -> set[str]:
    """Return the tests of the files about the fault: importing a test file takes time.

    First comes the file that mirrors the module; else a file is about what most of its tests run.
    """
    there = Counter(name.split("::")[0] for name in sorted(known.seconds))
    count = Counter(name.split("::")[0] for name in sorted(tests))
    files = sorted(
        count, key=lambda name: (name != mirror, -count[name] / there[name], -count[name])
    )
    files = files[:FILES_IMPORTED]
    return {name for name in tests if name.split("::")[0] in files}


def _covering(tree: Path, fault: Fault, known: CoverageMap) -> set[str]:
    """Return the tests that run a fault."""
    if fault.path.endswith(".py") and fault.function:
        found = known.tests_of(fault.path, *fault.lines)
        # A line that only the import runs, such as the lambda of a default.
        return found or (known.tests_of_module(fault.path) if _imports(fault, known) else set())
    if fault.path.endswith(".py"):
        return _mentioning(tree, _names(fault.statement), known) or known.tests_of_module(
            fault.path
        )
    prefix = Path(fault.path).parent.name
    return _mentioning(tree, rf"(?:native|library\(\))\.{prefix}_\w+", known)


def _imports(fault: Fault, known: CoverageMap) -> bool:
    """Return whether a fault lies in code that runs at import."""
    return known.runs_at_import(fault.path, *fault.lines)


def needs_import(fault: Fault, known: CoverageMap) -> bool:
    """Return whether a fault must be there before the package is imported."""
    return fault.path.endswith(".py") and (not fault.function or _imports(fault, known))


def _names(statement: str) -> str:
    """Return a pattern of the name that a statement at module level gives a value."""
    assigned = re.match(r"(\w+)\s*(?::[^=]+)?=[^=]", statement)
    return rf"\b{assigned[1]}\b" if assigned else r"(?!)"


def _mentioning(tree: Path, pattern: str, known: CoverageMap) -> set[str]:
    """Return the tests that run a line of the package that matches a pattern."""
    found: set[str] = set()
    for path in sorted(tree.glob("layerdag/**/*.py")):
        name = str(path.relative_to(tree))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(pattern, line):
                found |= known.tests_of(name, number, number)
    return found
