import importlib.util
from pathlib import Path

from layerdag.evaluation.rules import TRACE_RULES


def _broken_examples(file: str) -> set[str]:
    path = Path(__file__).with_name(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return set(module.BROKEN)


def test_every_rule_has_an_example_that_breaks_it() -> None:
    examples = _broken_examples("test_trace.py") | _broken_examples("test_workload.py")
    # These are broken by what the readers refuse, by files (see the tests of the command), and by
    # a job as a whole.
    elsewhere = {"readable", "described-groups", "ranks-communicate"}
    assert examples | elsewhere == set(TRACE_RULES)


def test_rules_speak_in_sentences() -> None:
    for rule in TRACE_RULES.values():
        assert rule.what.endswith(".")
        assert rule.remedy.endswith(".")
