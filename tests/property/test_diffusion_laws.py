import itertools

import torch
from hypothesis import given, strategies as st
from laws import tried
from noising import forward_distribution

from layerdag.models.draws import SampleStreams, choose_in_groups, sample_categorical
from layerdag.models.reference.diffusion import (
    cosine_alpha_bar,
    reverse_distribution,
    strided_timesteps,
)

weights = st.lists(st.floats(0.01, 1), min_size=2, max_size=6)
small = tried(60)


def normal(values: list[float]) -> torch.Tensor:
    row = torch.tensor(values, dtype=torch.float64)
    return row / row.sum()


@small
@given(weights, st.integers(2, 64), st.data())
def test_reverse_step_of_the_true_posterior_gives_back_the_forward_marginal(values, steps, data):
    """Noising to t and reversing to s with the exact p(x_0 | x_t) equals noising to s."""
    marginal = normal(values)
    codes = len(values)
    clean = normal(data.draw(st.lists(st.floats(0.01, 1), min_size=codes, max_size=codes)))
    now = data.draw(st.integers(1, steps))
    then = data.draw(st.integers(0, now - 1))
    keep = cosine_alpha_bar(steps)
    to_now = forward_distribution(torch.arange(codes), keep[now].expand(codes), marginal)
    joint = clean[:, None] * to_now
    posterior = (joint / joint.sum(0)).T
    back = reverse_distribution(posterior, torch.arange(codes), marginal, keep[now], keep[then])
    torch.testing.assert_close(back.sum(-1), torch.ones(codes, dtype=torch.float64))
    at_then = forward_distribution(torch.arange(codes), keep[then].expand(codes), marginal)
    torch.testing.assert_close(joint.sum(0) @ back, clean @ at_then)


@small
@given(weights, st.floats(1e-9, 1 - 1e-9))
def test_draw_inverts_the_cumulative_distribution(values, uniform):
    probability = normal(values)
    code = int(sample_categorical(probability, torch.tensor(uniform, dtype=torch.float64)))
    reach = probability.cumsum(0)
    assert reach[code] >= uniform * reach[-1]
    assert code == 0 or reach[code - 1] <= uniform * reach[-1]


@small
@given(st.integers(1, 100), st.integers(1, 120))
def test_strided_times_fall_strictly_to_0(steps, wanted):
    times = strided_timesteps(steps, wanted)
    assert times[0] == steps
    assert times[-1] == 0
    assert all(a > b for a, b in itertools.pairwise(times))
    assert len(times) == min(steps, wanted) + 1


@small
@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-5, 5)), min_size=1), st.data())
def test_each_group_gives_its_largest_keys(rows, data):
    rows.sort(key=lambda row: row[0])
    group = torch.tensor([row[0] for row in rows])
    key = torch.tensor([row[1] for row in rows])
    count = torch.tensor(data.draw(st.lists(st.integers(0, 6), min_size=5, max_size=5)))
    chosen = choose_in_groups(key, group, count)
    for g in range(5):
        mine, left = key[(group == g) & chosen], key[(group == g) & ~chosen]
        assert len(mine) == min(int(count[g]), int((group == g).sum()))
        assert not len(mine) or not len(left) or mine.min() >= left.max()


@small
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=5), st.data())
def test_streams_do_not_depend_on_how_draws_are_split(seeds, data):
    counts = torch.tensor(
        data.draw(st.lists(st.integers(0, 5), min_size=len(seeds), max_size=len(seeds)))
    )
    more = torch.tensor(
        data.draw(st.lists(st.integers(0, 5), min_size=len(seeds), max_size=len(seeds)))
    )
    parts, whole = SampleStreams(seeds), SampleStreams(seeds)
    first, second = parts.uniforms(counts), parts.uniforms(more)
    both = whole.uniforms(counts + more)
    for b, row in enumerate(both.split((counts + more).tolist())):
        own = [first.split(counts.tolist())[b], second.split(more.tolist())[b]]
        assert torch.equal(row, torch.cat(own))
