"""Laws of the engine: batches, caches, instances."""

from dataclasses import replace
from typing import final

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from layerdag.serving import run as engine
from layerdag.serving.iteration_time import IterationTime
from layerdag.serving.iteration_work import BatchLoad
from layerdag.serving.requests import Requests
from layerdag.serving.run import InstanceGroup, ServingCluster, ServingRun, Transfer
from layerdag.serving.scheduler import Limits


@final
class Linear(IterationTime):
    """1 ms an iteration, 10 us a prompt's token, 100 us a decode, 1 us a cached token."""

    def seconds(self, load: BatchLoad) -> np.ndarray:
        time_us = 1000 + 10 * load.prefill_tokens + 100 * load.decodes + load.decode_context
        return 1e-6 * time_us.max(axis=0)


def instance_group(
    blocks: int = 10_000, instances: int = 1, ranks: int = 1, **limits: object
) -> InstanceGroup:
    return InstanceGroup(instances, ranks, Linear(), Limits(**limits), blocks)  # type: ignore[arg-type]


def asked(count: int, rate: float, seed: int = 0, most: int = 200) -> Requests:
    drawn = np.random.default_rng(seed)
    return Requests(
        np.cumsum(drawn.exponential(1 / rate, count)),
        drawn.integers(1, most, count),
        drawn.integers(1, most, count),
    )


def totals(run: ServingRun) -> tuple[int, int]:
    return (
        int(sum(part.prefill_tokens.sum() for part in run.iterations)),
        int(sum(part.decodes.sum() for part in run.iterations)),
    )


def require_laws(run: ServingRun) -> None:
    """Every request is answered whole, never before it came, in no more cache than there is."""
    asked = run.requests
    assert np.isfinite(run.finish_s).all()
    assert (run.first_token_s > asked.arrival_s).all()
    one = asked.output_tokens == 1
    assert ((run.finish_s > run.first_token_s) | one).all()
    for part, blocks in zip(run.iterations, run.blocks, strict=True):
        assert part.held.max(initial=0) <= blocks
        assert (part.start_s[1:] >= (part.start_s + part.seconds)[:-1] - 1e-9).all()


@given(
    seed=st.integers(0, 10**6),
    blocks=st.integers(26, 200),
    sequences=st.integers(1, 40),
    tokens=st.integers(40, 400),
    chunked=st.booleans(),
    mixed=st.booleans(),
    ranks=st.integers(1, 3),
)
@settings(max_examples=25, deadline=None)
def test_every_request_is_answered_whole_whatever_the_limits(
    seed, blocks, sequences, tokens, chunked, mixed, ranks
):
    requests = asked(30, 50.0, seed)
    limits = {"sequences": sequences, "tokens": tokens, "chunked": chunked, "mixed": mixed}
    run = ServingCluster(requests, instance_group(blocks, 1, ranks, **limits)).run()
    require_laws(run)
    prompts, decodes = totals(run)
    # A prompt that ends draws one token, a decode another one; what was pre-empted is drawn once.
    recomputed = prompts - int(requests.input_tokens.sum())
    assert recomputed >= 0
    assert (recomputed > 0) <= (run.preemptions > 0)
    assert decodes <= int(requests.output_tokens.sum()) - 30
    assert decodes >= int(requests.output_tokens.sum()) - 30 - run.preemptions


@given(seed=st.integers(0, 10**6), blocks=st.integers(26, 200), concurrency=st.integers(0, 8))
@settings(max_examples=15, deadline=None)
def test_iterations_timed_at_once_are_those_timed_one_by_one(seed, blocks, concurrency):
    requests = asked(25, 20.0, seed)
    cluster = [
        ServingCluster(
            requests, instance_group(blocks, 2, sequences=8, tokens=100), concurrency=concurrency
        )
        for _ in range(2)
    ]
    quick = cluster[0].run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "MAX_STEPS", 1)
        slow = cluster[1].run()
    np.testing.assert_allclose(quick.finish_s, slow.finish_s, rtol=1e-9)
    np.testing.assert_allclose(quick.first_token_s, slow.first_token_s, rtol=1e-9)
    assert quick.preemptions == slow.preemptions


def test_a_request_alone_takes_its_chunks_and_then_a_step_for_each_token():
    requests = Requests(np.array([2.0]), np.array([250]), np.array([31]))
    run = ServingCluster(requests, instance_group(tokens=100, sequences=4)).run()
    chunks = 3 * 1e-3 + 250 * 10e-6
    steps = sum(1e-3 + 100e-6 + (250 + done) * 1e-6 for done in range(1, 31))
    assert run.first_token_s[0] == pytest.approx(2 + chunks)
    assert run.finish_s[0] == pytest.approx(2 + chunks + steps)


def test_the_rate_of_a_full_engine_does_not_depend_on_arrivals():
    ends = []
    for rate in (500.0, 5000.0):
        run = ServingCluster(asked(2000, rate), instance_group(sequences=16)).run()
        ends.append(float(run.finish_s.max()))
    assert ends[0] == pytest.approx(ends[1], rel=0.01)


def test_replicas_share_the_work():
    one, two = (
        ServingCluster(asked(400, 5000.0), instance_group(instances=n)).run() for n in (1, 2)
    )
    require_laws(two)
    assert two.finish_s.max() < 0.75 * one.finish_s.max()
    assert 150 < (two.instance == 0).sum() < 250


def test_equal_prefixes_are_computed_once_while_the_cache_holds_them():
    hashes = [[1, 2], [1, 2], [1, 3], [1, 2]]
    far = np.array([0.0, 10.0, 20.0, 30.0])
    requests = Requests(far, np.full(4, 40), np.full(4, 5), hashes, hash_tokens=16)
    run = ServingCluster(requests, instance_group()).run()
    # The second finds both parts, the third the first one, the fourth both.
    assert run.reused_tokens == 32 + 16 + 32
    assert totals(run)[0] == 4 * 40 - run.reused_tokens
    tight = ServingCluster(requests, instance_group(blocks=3)).run()
    require_laws(tight)
    assert tight.reused_tokens < run.reused_tokens
    whole = replace(requests, input_tokens=np.full(4, 32))
    # A prompt that is known whole still computes a part: its last token draws the answer's first.
    assert ServingCluster(whole, instance_group()).run().reused_tokens == 16 * 3


@given(seed=st.integers(0, 10**6), blocks=st.integers(26, 120))
@settings(max_examples=15, deadline=None)
def test_shared_parts_are_never_lost_or_counted_twice(seed, blocks):
    drawn = np.random.default_rng(seed)
    requests = asked(30, 100.0, seed)
    hashes = [
        drawn.integers(0, 3, length // 16).tolist() for length in requests.input_tokens.tolist()
    ]
    hashes = [[hash(tuple(part[: at + 1])) for at in range(len(part))] for part in hashes]
    shared = replace(requests, hashes=hashes, hash_tokens=16)
    cluster = ServingCluster(shared, instance_group(blocks, 2, tokens=300), routing="prefix")
    require_laws(cluster.run())
    for instance in cluster._all:
        assert instance.ranks[0].cache.held == 0
        assert not instance.ranks[0]._filling.any()


def test_a_cache_that_is_sent_comes_later_by_its_transfer():
    requests = asked(100, 20.0)
    sent = Transfer(token_bytes=1e6, bytes_per_s=1e9, latency_s=0.5)
    run = ServingCluster(requests, instance_group(instances=2), instance_group(), sent).run()
    require_laws(run)
    more = requests.output_tokens > 1
    waited = run.finish_s - run.first_token_s
    assert (waited[more] >= 0.5 + requests.input_tokens[more] * 1e-3).all()
    assert totals(run) == (
        int(requests.input_tokens.sum()),
        int(requests.output_tokens.sum()) - len(requests),
    )
    # Instances for prompts decode nothing, the others compute no prompt.
    assert run.iterations[0].decodes.sum() == 0
    assert run.iterations[1].prefill_tokens.sum() == 0


def test_so_many_requests_run_at_a_time_as_are_let_in():
    requests = replace(asked(200, 1e6), arrival_s=np.zeros(200))
    run = ServingCluster(requests, instance_group(instances=2), concurrency=7).run()
    require_laws(run)
    came = np.concatenate([run.requests.arrival_s, run.finish_s])
    step = np.concatenate([np.ones(200), -np.ones(200)])
    order = np.lexsort((step, came))
    assert np.cumsum(step[order]).max() == 7


def test_what_fits_in_no_cache_is_refused():
    requests = Requests(np.zeros(2), np.array([500, 20]), np.array([5, 5]))
    run = ServingCluster(requests, instance_group(blocks=26)).run()
    assert run.refused.tolist() == [True, False]
    assert np.isfinite(run.finish_s).tolist() == [False, True]
