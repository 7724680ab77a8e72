"""Graph-level numbers and categories: their scale, and what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.datasets.schema._conditions import CategoryCondition, NumericCondition
from layerdag.errors import VocabularyError


@pytest.mark.parametrize("unknown", [math.inf, -math.inf, math.nan])
def test_values_that_are_not_finite_do_not_enter_the_scale(unknown: float) -> None:
    known = [1.0, 2.0, 4.0, 5.0]
    fitted = NumericCondition.fit("label", [known[0], unknown, *known[1:]])
    assert fitted == NumericCondition.fit("label", known)
    assert (fitted.mean, fitted.log) == (3.0, False)
    assert fitted.std == 1.58


def test_values_over_several_orders_are_scaled_by_their_logarithm() -> None:
    fitted = NumericCondition.fit("label", [1.0, math.e**2, math.e**4])
    assert fitted.log
    assert fitted.mean == pytest.approx(2.0)
    assert fitted.std == 1.63
    assert fitted.encode(math.e**4) == pytest.approx(2 / 1.63)
    assert fitted.decode(fitted.encode(7.0)) == pytest.approx(7.0)


def test_a_condition_without_known_values_encodes_numbers_as_they_are() -> None:
    fitted = NumericCondition.fit("label", [math.nan])
    assert fitted.encode(2.5) == 2.5
    assert math.isnan(fitted.encode(None))


def test_the_range_is_what_five_graphs_reach_and_no_quantile_names_a_graph() -> None:
    values = np.concatenate([np.arange(100.0, 200.0), [1e9, 0.001]])
    fitted = NumericCondition.fit("label", values.tolist())
    assert fitted.draw_range() == (103.0, 196.0)
    assert len(fitted.quantiles) == 20
    assert NumericCondition.fit("label", [1.0, 2.0, 7.0]).quantiles == (2.0,)


def test_scale_and_quantiles_are_rounded(rng: np.random.Generator) -> None:
    fitted = NumericCondition.fit("label", rng.normal(123456.0, 2.0, 300).tolist())
    assert fitted.std == float(f"{fitted.std:.3g}")
    assert round(fitted.mean, 2) == pytest.approx(fitted.mean, abs=1e-9)
    assert fitted.encode(123456.0) == pytest.approx(0, abs=0.3)
    assert all(quantile == float(f"{quantile:.3g}") for quantile in fitted.quantiles)


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=40),
    st.floats(-1e6, 1e6, allow_subnormal=False),
)
@tried(40)
def test_any_number_comes_back_from_its_standardized_form(values, asked):
    condition = NumericCondition.fit("label", values)
    if condition.log:
        asked = abs(asked) + 1e-3
    again = condition.decode(condition.encode(asked))
    assert again == pytest.approx(asked, rel=1e-6, abs=1e-6 * max(condition.std, 1.0))


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=60))
@tried(40)
def test_a_scale_is_standard_to_its_rounding(values):
    condition = NumericCondition.fit("label", values)
    if min(values) <= 0 or condition.std <= 1e-5:
        return
    scaled = np.array([condition.encode(value) for value in values])
    # mean to a hundredth of std, std to three digits.
    assert abs(scaled.mean()) < 0.02
    assert scaled.std() == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(("values", "log"), [((1.0, 19.0), False), ((1.0, 21.0), True)])
def test_a_ratio_of_twenty_decides_on_the_logarithm(values, log):
    assert NumericCondition.fit("label", values).log is log


def test_zero_and_negative_values_are_never_scaled_by_a_logarithm():
    assert not NumericCondition.fit("label", (0.0, 1e6)).log
    assert not NumericCondition.fit("label", (-1.0, 1e6)).log


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), "fast"])
def test_what_a_logarithm_cannot_take_is_refused_with_the_usual_range(value):
    condition = NumericCondition.fit("label", [float(10**i) for i in range(11)])
    with pytest.raises(VocabularyError) as caught:
        condition.encode(value)
    told = str(caught.value)
    assert f"'label' must be a positive number, found {value!r}" in told
    assert "most training graphs have 1e+04 to 1e+06" in told


def test_numbers_in_words_are_numbers_and_none_is_unknown():
    condition = NumericCondition("label", mean=1.0, std=2.0, log=False, quantiles=(1.0,))
    assert condition.encode("5") == 2.0
    assert math.isnan(condition.encode(None))


def test_decoding_an_extreme_number_gives_a_number():
    condition = NumericCondition("label", mean=0.0, std=1.0, log=True, quantiles=(1.0,))
    assert condition.decode(1e9) == math.exp(700)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"std": 0.0}, "std positive"),
        ({"std": -1.0}, "std positive"),
        ({"mean": math.nan}, "finite"),
        ({"quantiles": []}, "finite"),
        ({"quantiles": [math.inf]}, "finite"),
        ({"mean": 661.0, "std": 1.0, "log": True}, "40 deviations"),
        ({"mean": 1e300, "std": 1e300}, "40 deviations"),
    ],
)
def test_a_scale_from_outside_must_give_numbers(change, words):
    sound = {"name": "label", "mean": 0.0, "std": 1.0, "log": False, "quantiles": [0.0, 1.0]}
    assert NumericCondition.from_dict(sound).draw_range() == (0.0, 1.0)
    with pytest.raises(ValueError, match=words):
        NumericCondition.from_dict({**sound, **change})


def test_categories_have_a_code_by_place_and_the_nearest_is_named():
    condition = CategoryCondition("family", ("bert", "gpt", "mlp"))
    assert [condition.encode(word) for word in ("bert", "mlp", None)] == [0, 2, -1]
    with pytest.raises(VocabularyError) as caught:
        condition.encode("gtp")
    assert str(caught.value) == (
        "Condition 'family' has no value 'gtp'. Did you mean 'gpt'? Known: bert, gpt, mlp."
    )
    with pytest.raises(VocabularyError, match=r"no value 'xyz'\. Known:"):
        condition.encode("xyz")


@pytest.mark.parametrize(
    ("values", "error"),
    [(["a", "a"], ValueError), ("ab", TypeError), (["a", 3], TypeError), (["a\x00"], ValueError),
     (["x" * 4097], ValueError), (["\ud800"], ValueError)],
)  # fmt: skip
def test_words_from_outside_are_distinct_short_and_writable(values, error):
    assert CategoryCondition.from_dict({"name": "n", "values": ["a\tb", ""]}).values == ("a\tb", "")
    with pytest.raises(error):
        CategoryCondition.from_dict({"name": "n", "values": values})
