"""Every decision is read from what is known when it is made, and from nothing else."""

import pytest
import torch

from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.models.autoregressive import CandidatePairs, Heads, HeadsConfig, Pointer
from layerdag.models.autoregressive._heads import Readout
from layerdag.models.autoregressive._parents import BLOCK_CODES, TOKEN_CODES
from tests.unit.models.autoregressive.small_models import SIZES, small_dags

WIDTH, KEY = 8, 4
STATISTICS = GraphStatistics.measure(small_dags(), SIZES)


def heads(
    *, plans: bool = True, sizes: GraphSizes = SIZES, config: HeadsConfig | None = None
) -> Heads:
    torch.manual_seed(0)
    return Heads(sizes, STATISTICS, WIDTH, KEY, plans=plans, config=config)


def states(rows: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(rows, WIDTH, generator=generator)


def test_a_readout_ignores_shift_and_scale_of_its_state(generator: torch.Generator):
    readout, state = Readout(WIDTH, 5), states(3, generator)
    plain = readout(state)
    assert plain.shape == (3, 5)
    torch.testing.assert_close(readout(7 * state + 2), plain, rtol=1e-3, atol=1e-4)


def test_a_graph_has_a_first_layer_but_need_not_have_another(generator: torch.Generator):
    logits = heads().size_logits(states(2, generator), torch.tensor([True, False]))
    assert logits[0].isinf().tolist() == [True, *[False] * (logits.shape[1] - 1)]
    assert logits[1].isfinite().all()


def test_sizes_and_degrees_beyond_training_keep_a_code_of_their_own():
    every = heads()
    assert every.out_degree is not None
    for counter, readout, most in (
        (every.size, every.size_readout, STATISTICS.max_layer_size),
        (every.in_degree, every.degree_readout, STATISTICS.max_in_degree),
        (every.out_degree, every.plan_readout, STATISTICS.max_out_degree),
    ):
        assert readout is not None
        assert readout.project.out_features == counter.num_codes
        assert counter.encode(torch.tensor(most + 1)) > counter.encode(torch.tensor(most))
        assert counter.encode(torch.tensor(10**6)) == counter.num_codes - 1


def test_the_place_in_a_layer_changes_the_state(generator: torch.Generator):
    every, encoded = heads(), states(1, generator).expand(3, -1)
    found = every.context_state(encoded, torch.tensor([4, 4, 5]), torch.tensor([0, 1, 1]))
    assert (torch.cdist(found, found) + torch.eye(3) > 1e-3).all()


def test_each_step_of_a_node_adds_to_its_state(generator: torch.Generator):
    """States are sums, so what one decision adds does not depend on the others."""
    every, first, second = heads(), *states(2, generator).split(1)
    code, parent = torch.tensor([1]), states(1, generator)
    steps = [
        lambda state: every.kind_state(state, parent, code),
        lambda state: every.degree_state(state, code),
        lambda state: every.further_state(state, parent, code, parent),
        lambda state: every.other_state(state, code, parent),
        lambda state: every.after_other(state, 0, code),
    ]
    for step in steps:
        added = step(first) - first
        assert added.abs().max() > 1e-3
        torch.testing.assert_close(step(second) - second, added, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("plans", "attributes", "chained"),
    [
        (True, "chained", [True, True]),
        (False, "chained", [True, False]),
        (True, "independent", [False, False]),
        (False, "independent", [False, False]),
    ],
)
def test_later_attributes_follow_earlier_ones_if_they_are_chained(
    plans: bool, attributes: str, chained: list[bool], generator: torch.Generator
):
    every = heads(plans=plans, config=HeadsConfig(attributes=attributes))
    state = states(2, generator)
    changed = [
        not torch.equal(every.after_other(state, index, torch.tensor([0, 1])), state)
        for index in range(len(SIZES.attributes) - 1)
    ]
    assert changed == chained


def test_without_prediction_of_out_degrees_there_is_no_readout_for_them():
    names = set(heads(plans=False).state_dict())
    assert not any(name.startswith("plan_readout") for name in names)
    extra = set(heads(plans=True).state_dict()) - names
    # The last attribute is embedded for the out-degree alone.
    assert {name.split(".")[0] for name in extra} == {"plan_readout", "other_embeddings"}


def test_with_the_kind_alone_there_are_no_other_readouts():
    one = heads(sizes=GraphSizes(SIZES.attributes[:1], edge_types=SIZES.edge_types), plans=False)
    assert len(one.other_readouts) == len(one.other_embeddings) == 0


def scored(pointer: Pointer, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return (hidden states, keys, codes, decisions, candidates) of seven pairs."""
    hidden = pointer.activate(states(3, generator))
    key = torch.randn(7, KEY, generator=generator)
    codes = torch.stack([torch.randint(n, (7,), generator=generator) for n in TOKEN_CODES], 1)
    return hidden, key, codes, torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.arange(7)


def test_a_candidate_token_is_scored_by_its_key_and_its_features(generator: torch.Generator):
    pointer = Pointer(WIDTH, KEY)
    hidden, key, codes, decision, candidate = scored(pointer, generator)
    found = pointer.tokens(hidden, key, codes, CandidatePairs(decision, candidate))
    offsets = [sum(TOKEN_CODES[:i]) for i in range(4)]
    for pair, which in enumerate(decision.tolist()):
        state = hidden[which]
        score = pointer.query(state) @ key[pair] / KEY**0.5
        terms = pointer.code_scores(state)[torch.tensor(offsets) + codes[pair]]
        torch.testing.assert_close(found[pair], score + terms.sum())


def test_a_candidate_block_is_scored_by_its_mean_key_and_its_pending_children(
    generator: torch.Generator,
):
    pointer = Pointer(WIDTH, KEY)
    hidden, key, codes, decision, candidate = scored(pointer, generator)
    code = codes[:, 2]
    found = pointer.blocks(hidden, key, code, CandidatePairs(decision, candidate))
    for pair, which in enumerate(decision.tolist()):
        score = pointer.far_query(hidden[which]) @ key[pair] / KEY**0.5
        wanted = score + pointer.block_scores(hidden[which])[code[pair]]
        torch.testing.assert_close(found[pair], wanted)
    assert pointer.block_scores.out_features == BLOCK_CODES


def test_scores_do_not_depend_on_the_order_of_the_candidates(generator: torch.Generator):
    pointer = Pointer(WIDTH, KEY)
    hidden, key, codes, decision, candidate = scored(pointer, generator)
    order = torch.tensor([4, 0, 6, 2, 1, 5, 3])
    plain = pointer.tokens(hidden, key, codes, CandidatePairs(decision, candidate))
    mixed = CandidatePairs(decision[order], candidate[order])
    torch.testing.assert_close(
        pointer.tokens(hidden, key[order], codes[order], mixed), plain[order]
    )


def test_a_further_parent_depends_on_all_chosen_ones_if_asked(generator: torch.Generator):
    code, parent = torch.tensor([1]), states(1, generator)
    state, sums = states(1, generator), states(2, generator).split(1)
    for chosen in ("last", "all"):
        every = heads(config=HeadsConfig(chosen_parents=chosen))
        one, other = (every.further_state(state, parent, code, total) for total in sums)
        assert torch.equal(one, other) is (chosen == "last")
