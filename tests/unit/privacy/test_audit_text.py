import pytest
from raw_graphs import chain

from layerdag.datasets.dataset import GraphDataset
from layerdag.privacy.audit_text import too_few_held_out
from layerdag.privacy.membership import MARGIN, chance_half_width


def dataset(train: int, val: int, test: int) -> GraphDataset:
    graph = chain("g", "ab")
    parts = {"train": [graph] * train, "val": [graph] * val, "test": [graph] * test}
    return GraphDataset.build("toy", "flow", parts)


def test_few_held_out_graphs_are_told_with_the_number_needed_and_what_to_do() -> None:
    advice = too_few_held_out(dataset(26, 3, 3))
    assert advice is not None
    assert "6 graphs are held out (validation and test) beside 26 for training" in advice
    assert "held-out graphs are needed" in advice
    assert "column 'split'" in advice
    assert "data.held_out" in advice


def test_nothing_held_out_is_told() -> None:
    advice = too_few_held_out(dataset(5, 0, 0))
    assert advice is not None
    assert "no graph is held out" in advice


def test_enough_held_out_graphs_need_no_advice() -> None:
    assert too_few_held_out(dataset(751, 105, 151)) is None


@pytest.mark.parametrize(("train", "held_out"), [(10, 2), (50, 20), (200, 60)])
def test_the_advice_names_the_area_from_which_an_attack_shows(train: int, held_out: int) -> None:
    advice = too_few_held_out(dataset(train, held_out // 2, held_out - held_out // 2))
    assert advice is not None
    half = chance_half_width(train, held_out)
    assert f"only above an area of {0.5 + half:.2f}, and about" in advice
    wanted = int(advice.split("and about ")[1].split(" held-out")[0].replace(",", ""))
    # With so many on both sides an interval around chance is narrow enough, with a tenth it is not.
    assert wanted > held_out
    assert chance_half_width(wanted, wanted // 10) > MARGIN


def test_more_held_out_graphs_narrow_the_interval() -> None:
    widths = [chance_half_width(100, held_out) for held_out in (5, 20, 80, 320)]
    assert widths == sorted(widths, reverse=True)
