"""Figures, tables and JSON keys of a small comparison are those that they have always been.

What figures are called in sentences may change: ``PROSE`` are the keys of these.
"""

import json

import pytest
from golden_comparison import golden_comparison

SECTIONS = (
    "similarity",
    "with_failures",
    "by_depth",
    "novelty",
    "leaks",
    "report",
    "summary",
    "scores",
)

PROSE = ("what", "note")


@pytest.fixture(scope="module")
def found() -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layerdag.privacy.membership_attacks.TREES", 150)  # as for users
        return json.loads(json.dumps(golden_comparison(), allow_nan=False))


@pytest.mark.parametrize("section", SECTIONS)
def test_a_comparison_prints_and_saves_what_it_always_did(section, found, repository):
    golden = json.loads((repository / "tests/golden/comparison.json").read_text())
    assert tuple(golden) == SECTIONS
    require_same(found[section], golden[section], section)


def require_same(found: object, golden: object, where: str) -> None:
    """Fail unless keys, their order, words and numbers are the same, but for the last digits."""
    if isinstance(golden, dict):
        assert isinstance(found, dict), where
        assert list(found) == list(golden), where
        for key, value in golden.items():
            assert key not in PROSE or isinstance(found[key], str), where
            if key not in PROSE:
                require_same(found[key], value, f"{where}.{key}")
    elif isinstance(golden, list):
        assert isinstance(found, list), where
        assert len(found) == len(golden), where
        for place, value in enumerate(golden):
            require_same(found[place], value, f"{where}[{place}]")
    elif isinstance(golden, float):
        # Other processors and linear-algebra libraries round the last digits another way.
        assert found == pytest.approx(golden, rel=1e-6, abs=1e-9), where
    else:
        assert found == golden, where
