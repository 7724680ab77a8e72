import numpy as np

from layerdag.surrogates import evaluation
from layerdag.surrogates.saving._card import card

NOTES = {
    "target": "label",
    "data": "toy",
    "train": 30,
    "seed": 5,
    "excluded": ["duration"],
    "seen": {"fewest": 3, "most": 99, "codes": []},
    "calibration": {"log": True, "errors": [0.1] * 12},
}


def test_a_card_says_what_it_was_fitted_on_and_how_far_it_goes() -> None:
    text = card("boosting", NOTES)
    assert text.startswith("# Surrogate of label\n")
    for told in (
        "| family | `boosting` |",
        "toy, 30 training graphs",
        "does not see | duration |",
        "3 to 99 nodes",
        "12 validation graphs",
    ):
        assert told in text
    assert "test graphs" not in text


def test_scores_stand_in_the_card_with_their_intervals() -> None:
    value_B = np.arange(1.0, 20.0)
    found = evaluation("label", value_B, value_B * 1.05).to_dict()
    text = card("message_passing", {**NOTES, "evaluation": found})
    assert "## On 19 test graphs that no fit saw" in text
    assert "| mape | 0.05 | 0.05 to 0.05 |" in text
    signed = evaluation("label", value_B - 9, value_B - 9).to_dict()
    assert "| pearson_log | not defined |  |" in card("boosting", {**NOTES, "evaluation": signed})


def test_a_surrogate_without_notes_has_a_card_too() -> None:
    text = card("boosting", {})
    assert "| attributes that it does not see | none |" in text
    assert "gives no intervals" in text
