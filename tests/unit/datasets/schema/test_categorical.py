"""Words of node attributes and their codes."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, strategies as st

from layerdag.codec import OTHER, AttributedGraph
from layerdag.datasets.schema import CategoryAttribute
from layerdag.datasets.schema._categorical import MAX_WORD, fit_category, words_of
from layerdag.errors import VocabularyError

CLOSED = CategoryAttribute("op", ("add", "mm", "relu"))
OPEN = CategoryAttribute("op", ("add", "mm", OTHER))


def graph(*words: str, vocabulary: tuple[str, ...] = (), is_open: bool = False) -> AttributedGraph:
    return AttributedGraph(
        name="graph",
        categories={"op": list(words)},
        numbers={},
        edge_index_2E=np.zeros((2, 0), dtype=np.int64),
        edge_type_E=np.zeros(0, dtype=np.int64),
        edge_type_names=("data",),
        conditions={},
        vocabularies={"op": vocabulary} if vocabulary else {},
        open_vocabularies=("op",) if is_open else (),
    )


@given(st.lists(st.sampled_from(CLOSED.values), max_size=20))
def test_decoding_undoes_encoding(words: list[str]) -> None:
    assert CLOSED.decode(CLOSED.encode(words)) == words


def test_words_are_numbered_by_the_alphabet_whatever_their_order() -> None:
    assert fit_category("op", [graph("relu", "mm"), graph("add")]) == CLOSED
    assert fit_category("op", [graph("add"), graph("mm", "relu", "mm")]) == CLOSED


def test_a_fixed_vocabulary_counts_words_that_no_node_has() -> None:
    assert fit_category("op", [graph("mm", vocabulary=("add", "relu"))]) == CLOSED


def test_an_open_vocabulary_ends_with_other() -> None:
    assert fit_category("op", [graph("mm", "add", is_open=True)]) == OPEN
    # Nodes that are <other> already do not move it to its place in the alphabet.
    assert fit_category("op", [graph(OTHER, "mm", "add")]) == OPEN


def test_unknown_words_of_an_open_vocabulary_are_other() -> None:
    assert OPEN.decode(OPEN.encode(["add", "conv"])) == ["add", OTHER]


def test_an_unknown_word_names_its_node_and_the_nearest_word() -> None:
    with pytest.raises(VocabularyError, match=r"Node 1 has op 'rellu'.*Did you mean 'relu'"):
        CLOSED.encode(["mm", "rellu"])


@pytest.mark.parametrize("codes", [[-1], [0, 3]])
def test_a_code_outside_the_vocabulary_is_refused(codes: list[int]) -> None:
    with pytest.raises(VocabularyError, match="'op' has codes 0 to 2"):
        CLOSED.decode(np.array(codes))


def test_no_codes_are_no_words() -> None:
    assert CLOSED.decode(np.zeros(0, dtype=np.int64)) == []


def test_a_file_gives_the_attribute_back() -> None:
    assert CategoryAttribute.from_dict(asdict(CLOSED)) == CLOSED


@pytest.mark.parametrize(
    ("values", "error", "told"),
    [
        ("add", TypeError, "a list of strings"),
        (["add", 3], TypeError, "a list of strings"),
        (["add", "add"], ValueError, "occurs twice"),
        (["a" * (MAX_WORD + 1)], ValueError, "longer than"),
        (["bell\a"], ValueError, "cannot be written"),
        (["half \ud83d"], ValueError, "cannot be written"),
    ],
)
def test_a_file_with_other_words_is_refused(
    values: object, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        words_of(values)


def test_tabs_and_new_lines_are_words_like_any_other() -> None:
    assert words_of(["a\tb", "c\nd"]) == ("a\tb", "c\nd")
