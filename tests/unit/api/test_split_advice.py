from raw_graphs import chain

from layerdag.api import too_few_held_out
from layerdag.datasets import GraphDataset


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
