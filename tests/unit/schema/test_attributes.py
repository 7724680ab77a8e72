"""Words of node attributes and their codes."""

import itertools
from dataclasses import asdict

import numpy as np
import pytest
from checked_parts import checked
from hypothesis import given, strategies as st
from laws import tried

from layerdag.codec.vocabulary import OTHER
from layerdag.errors import VocabularyError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.schema.attributes import (
    MAX_WORD,
    MIN_COUNT,
    CategoryAttribute,
    NumericAttribute,
    fit_category,
    require_words,
    shared_range,
)

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
def test_decoding_undoes_encoding(words):
    assert CLOSED.decode(CLOSED.encode(words)) == words


def test_vocabularies_are_alphabetic_fixed_or_open():
    assert fit_category("op", [graph("relu", "mm"), graph("add")]) == CLOSED
    assert fit_category("op", [graph("add"), graph("mm", "relu", "mm")]) == CLOSED
    assert fit_category("op", [graph("mm", vocabulary=("add", "relu"))]) == CLOSED
    assert fit_category("op", [graph("mm", "add", is_open=True)]) == OPEN
    # Nodes that are <other> already do not move it to its place in the alphabet.
    assert fit_category("op", [graph(OTHER, "mm", "add")]) == OPEN


def test_unknown_words_are_other_or_refused_with_the_nearest():
    assert OPEN.decode(OPEN.encode(["add", "conv"])) == ["add", OTHER]
    with pytest.raises(VocabularyError, match=r"Node 1 has op 'rellu'.*Did you mean 'relu'"):
        CLOSED.encode(["mm", "rellu"])


@pytest.mark.parametrize("codes", [[-1], [0, 3]])
def test_a_code_outside_the_vocabulary_is_refused(codes):
    with pytest.raises(VocabularyError, match="'op' has codes 0 to 2"):
        CLOSED.decode(np.array(codes))


def test_no_codes_are_no_words():
    assert CLOSED.decode(np.zeros(0, dtype=np.int64)) == []


def test_a_file_gives_the_attribute_back():
    assert checked(CategoryAttribute, asdict(CLOSED)) == CLOSED


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ("add", "'values' must be a list"),
        (["add", 3], r"'values\[1\]' must be a text"),
        (["add", "add"], "occurs twice"),
        (["a" * (MAX_WORD + 1)], "longer than"),
        (["bell\a"], "cannot be written"),
        (["half \ud83d"], "cannot be written"),
    ],
)
def test_a_file_with_other_words_is_refused(values, told):
    with pytest.raises(ValueError, match=told):
        checked(CategoryAttribute, {"name": "op", "values": values})


def test_tabs_and_new_lines_are_words_like_any_other():
    require_words(["a\tb", "c\nd"])


def fitted(values: np.ndarray, num_bins: int = 8) -> NumericAttribute:
    return NumericAttribute.fit("bytes", "bytes", values, num_bins)


def test_absent_and_infinite_values_have_code_zero():
    attribute = fitted(np.array([np.nan, 1.0, 2.0, 3.0]))
    codes, positions = attribute.encode(np.array([np.nan, 2.0]))
    assert codes[0] == 0
    assert codes[1] > 0
    assert np.isnan(attribute.decode(codes, positions)[0])
    attribute = fitted(np.array([1.0, np.inf, 2.0]))
    assert np.isfinite(attribute.bins).all()
    assert attribute.encode(np.array([np.inf]))[0].tolist() == [0]


def test_an_attribute_that_no_node_has_keeps_one_code():
    attribute = fitted(np.full(5, np.nan))
    assert attribute.num_codes == 1
    codes, positions = attribute.encode(np.array([7.0]))
    assert codes.tolist() == [0]
    assert np.isnan(attribute.decode(codes, positions)).all()


def test_values_shared_by_many_nodes_have_bins_that_no_other_overlaps(rng):
    values = np.concatenate([rng.lognormal(10, 2, 500), np.full(100, 65536.0)])
    attribute = fitted(values)
    assert (65536.0,) * 5 in attribute.bins
    codes, _ = attribute.encode(np.array([65536.0]))
    assert attribute.decode(codes, np.array([0.9], np.float32)).tolist() == [65536.0]
    # 131072 rounds to 131000: a bin that starts above it must not reach below it.
    near = 131072.0 + rng.integers(1, 400, 300)
    bins = fitted(np.concatenate([near, np.full(50, 131072.0)])).bins
    assert all(left[-1] <= right[0] for left, right in itertools.pairwise(bins))
    assert all(row[0] > 131072.0 for row in bins if row[-1] > 131072.0)


def test_decoding_random_positions_keeps_mean_and_tail(rng):
    values = rng.lognormal(10, 2.5, 20_000)
    attribute = fitted(values, num_bins=16)
    codes, _ = attribute.encode(values)
    drawn = attribute.decode(codes, rng.random(codes.size))
    assert drawn.mean() == pytest.approx(values.mean(), rel=0.1)
    assert np.quantile(drawn, 0.99) == pytest.approx(np.quantile(values, 0.99), rel=0.1)


def test_a_value_outside_the_training_range_falls_to_the_end_of_the_nearest_bin():
    attribute = fitted(np.arange(1.0, 101.0))
    codes, positions = attribute.encode(np.array([-5.0, 1e9]))
    assert attribute.decode(codes, positions) == pytest.approx([1.0, 100.0], rel=1e-5)


@pytest.mark.parametrize("code", [-1, 99])
def test_a_code_out_of_range_is_refused(code):
    attribute = fitted(np.arange(100.0))
    with pytest.raises(VocabularyError, match="codes 0 to"):
        attribute.decode(np.array([code]), np.array([0.5]))


def test_a_quantile_that_no_wall_is_near_has_three_digits(rng):
    values = rng.lognormal(10, 2.5, 5000)
    flat = [quantile for row in fitted(values).bins for quantile in row]
    assert all(quantile == float(f"{quantile:.3g}") for quantile in flat)


def test_no_bin_stands_for_fewer_than_sixteen_values(rng):
    values = rng.lognormal(10, 2.5, 1000)
    codes, _ = fitted(values, num_bins=500).encode(values)
    # Rounded ends move a value or two over a border.
    assert np.bincount(codes)[1:].min() >= MIN_COUNT - 2
    assert len(fitted(values[:40], num_bins=40).bins) <= 4


def test_extremes_are_those_that_five_graphs_reach(rng):
    graph_of = np.repeat(np.arange(20), 50)
    values = rng.uniform(100.0, 200.0, 1000)
    values[::50] = np.arange(20) + 1e6  # one huge value in each graph
    values[1::50] = 1.0 / (1 + np.arange(20))
    bins = NumericAttribute.fit("bytes", "bytes", values, 8, graph_of).bins
    assert bins[-1][-1] == pytest.approx(1e6 + 15, rel=1e-2)
    assert bins[0][0] == pytest.approx(1 / 16, rel=1e-2)
    assert NumericAttribute.fit("bytes", "bytes", values, 8).bins[0][0] == pytest.approx(1 / 20)


def test_one_graph_with_a_huge_value_leaves_no_trace_of_it(rng):
    graph_of = np.repeat(np.arange(20), 50)
    values = rng.uniform(100.0, 200.0, 1000)
    values[7] = 1e12
    assert NumericAttribute.fit("bytes", "bytes", values, 8, graph_of).bins[-1][-1] <= 200.0


def test_a_value_that_many_nodes_of_one_graph_share_gets_no_bin_of_its_own(rng):
    graph_of = np.repeat(np.arange(20), 50)
    values = rng.uniform(100.0, 200.0, 1000)
    values[graph_of == 3] = 123.456789
    secret = NumericAttribute.fit("bytes", "bytes", values, 8, graph_of)
    assert (123.456789,) * 5 not in secret.bins
    assert (123.456789,) * 5 in NumericAttribute.fit("bytes", "bytes", values, 8).bins


@given(st.integers(0, 2**32 - 1), st.sampled_from(["lognormal", "normal", "integers", "mixed"]))
@tried(20)
def test_bins_are_ascending_and_every_value_lies_in_the_one_it_is_encoded_as(seed, kind):
    rng = np.random.default_rng(seed)
    values = {
        "lognormal": lambda: rng.lognormal(0, 3, 300),
        "normal": lambda: rng.normal(0, 1e6, 300),
        "integers": lambda: rng.integers(-3, 40, 300).astype(float),
        "mixed": lambda: np.concatenate([np.full(60, 4096.0), rng.lognormal(8, 2, 200)]),
    }[kind]()
    attribute = NumericAttribute.fit("bytes", "bytes", values)
    flat = [quantile for row in attribute.bins for quantile in row]
    assert flat == sorted(flat)
    code_N, position_N = attribute.encode(values)
    assert ((code_N >= 1) & (code_N < attribute.num_codes)).all()
    assert ((position_N >= 0) & (position_N < 1)).all()
    decoded = attribute.decode(code_N, position_N)
    for value, code, again in zip(values, code_N, decoded, strict=True):
        low, high = attribute.bins[code - 1][0], attribute.bins[code - 1][-1]
        # Inside its bin a value comes back; beyond the end of one it is moved to the end.
        assert again == pytest.approx(min(max(value, low), high), rel=1e-4, abs=1e-6)


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 3))
@tried(30)
def test_decoding_is_monotone_in_the_position(position, code):
    attribute = NumericAttribute(
        "n", "1", ((-4.0, -2.0, 0.0, 1.0, 2.0), (3.0, 3.0, 9.0, 27.0, 81.0), (90.0,) * 5)
    )
    low, high = attribute.bins[code - 1][0], attribute.bins[code - 1][-1]
    at = attribute.decode(np.array([code] * 2), np.array([position, min(position + 0.05, 0.999)]))
    assert low <= at[0] <= at[1] <= high


def test_positions_are_linear_below_zero_and_geometric_above():
    attribute = NumericAttribute(
        "n", "1", ((-8.0, -4.0, 0.0, 2.0, 4.0), (10.0, 20.0, 40.0, 80.0, 1280.0))
    )
    codes, positions = attribute.encode(np.array([-6.0, 1.0, 3.0, 320.0, 10.0]))
    assert codes.tolist() == [1, 1, 1, 2, 2]
    # (left quantile + share of the way to the next) / 4; 320 is halfway from 80 to 1280 in ratios.
    expected = [(0 + 0.5) / 4, (2 + 0.5) / 4, (3 + np.log(1.5) / np.log(2)) / 4, (3 + 0.5) / 4, 0.0]
    np.testing.assert_allclose(positions, expected, rtol=1e-6)


def test_single_values_have_bins_of_their_own_and_others_the_nearest():
    attribute = NumericAttribute("n", "1", ((7.0,) * 5,))
    codes, positions = attribute.encode(np.array([7.0, np.nan]))
    assert codes.tolist() == [1, 0]
    assert attribute.decode(codes, np.array([0.1, 0.9]))[0] == 7.0
    assert positions.tolist()[1] == 0.0
    attribute = NumericAttribute("n", "1", ((0.0,) * 5, (10.0,) * 5))
    assert attribute.encode(np.array([4.9, 5.1]))[0].tolist() == [1, 2]


def test_the_range_that_graphs_share_by_hand():
    # Six graphs; the fifth smallest minimum and the fifth largest maximum.
    graphs = np.repeat(np.arange(6), 2)
    values = np.array([[g, 10.0 * g] for g in range(6)]).ravel()
    assert shared_range(values, graphs) == (4.0, 10.0)
    # Of fewer than five graphs the largest minimum and the smallest maximum.
    assert shared_range(np.array([3.0, 4.0, 5.0]), np.array([0, 0, 1])) == (5.0, 4.0)


@pytest.mark.parametrize(
    ("bins", "words"),
    [
        ([[1.0] * 4], "5 finite numbers"),
        ([[1.0, 2.0, 3.0, 4.0, float("inf")]], "5 finite numbers"),
        ([[float("nan")] * 5], "5 finite numbers"),
        ([[1e-101] * 5], "from 1e-100 to 1e"),
        ([[-1e101] * 5], "from 1e-100 to 1e"),
        ([[5.0] * 5, [4.0] * 5], "ascending order and not overlap"),
    ],
)
def test_bins_from_outside_are_checked(bins, words):
    plain = {"name": "n", "unit": "1", "bins": [[0.0] * 5, [1e-100, 1, 2, 3, 1e100]]}
    assert checked(NumericAttribute, plain).num_codes == 3
    with pytest.raises(ValueError, match=words):
        checked(NumericAttribute, {"name": "n", "unit": "1", "bins": bins})
