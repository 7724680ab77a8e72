"""The table of rules on graphs: every rule is a sentence, and has an example that breaks it."""

import importlib.util
from pathlib import Path

from layerdag.evaluation.rules import GRAPH_RULES, Severity


def _examples() -> set[str]:
    path = Path(__file__).with_name("test_graph.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return set(module.BROKEN)


def test_every_rule_has_an_example_that_breaks_it() -> None:
    # A kind that never starts a graph has a test of its own.
    assert _examples() | {"source-seen"} == set(GRAPH_RULES)


def test_rules_speak_in_sentences() -> None:
    for rule in GRAPH_RULES.values():
        assert rule.what[0].isupper()
        assert rule.what.endswith(".")
        assert rule.remedy.endswith(".")


def test_what_training_graphs_may_lack_is_a_warning() -> None:
    warnings = {name for name, rule in GRAPH_RULES.items() if rule.severity is Severity.WARNING}
    assert warnings == {"arity-seen", "source-seen", "connected"}
