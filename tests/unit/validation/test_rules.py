"""Findings as sentences, and tables of rules."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from layerdag.validation.rules import TRACE_RULES, Finding, Rule, Severity, has_errors, rule_table

ERROR = Rule("broken", Severity.ERROR, "It is broken.", "Mend it.", if_sampled="Sample again.")
WARNING = Rule("odd", Severity.WARNING, "It is odd.", "Look at it.")


@pytest.mark.parametrize(
    ("finding", "sentence"),
    [
        (Finding(ERROR, "a.et", 3, "is torn"), "a.et: node 3: is torn. Mend it."),
        (Finding(ERROR, "a.et", None, "no node"), "a.et: no node. Mend it."),
        (Finding(ERROR, "a.et", 0, "is torn", 5), "a.et: node 0: is torn (and 4 more). Mend it."),
        (Finding(ERROR, "a.et", 3, "is torn", 1, True), "a.et: node 3: is torn. Sample again."),
        (Finding(WARNING, "a.et", 3, "is odd", 1, True), "a.et: node 3: is odd. Look at it."),
    ],
)
def test_a_finding_is_a_sentence_of_place_defect_and_remedy(finding, sentence):
    assert finding.sentence() == sentence


def test_warnings_alone_are_no_errors():
    warning, error = Finding(WARNING, "a", None, "x"), Finding(ERROR, "a", None, "x")
    assert not has_errors([])
    assert not has_errors([warning, warning])
    assert has_errors([warning, error])


def test_two_rules_cannot_have_one_id():
    assert list(rule_table(ERROR, WARNING)) == ["broken", "odd"]
    with pytest.raises(AssertionError, match="distinct"):
        rule_table(ERROR, replace(WARNING, id="broken"))


def _broken_examples(file: str) -> set[str]:
    path = Path(__file__).with_name(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {*module.BROKEN, *module.WORKLOAD_BROKEN}


def test_every_rule_has_an_example_that_breaks_it():
    examples = _broken_examples("test_checking.py")
    # These are broken by what the readers refuse, by files (see the tests of the command), and by
    # a job as a whole.
    elsewhere = {"readable", "described-groups", "ranks-communicate"}
    assert examples | elsewhere == set(TRACE_RULES)


def test_rules_speak_in_sentences():
    for rule in TRACE_RULES.values():
        assert rule.what.endswith(".")
        assert rule.remedy.endswith(".")
