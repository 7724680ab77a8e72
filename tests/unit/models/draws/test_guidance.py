import pytest
import torch

from layerdag.models.draws import guided

CONDITIONAL = torch.tensor([[1.0, 0.0, -1.0]])
UNCONDITIONAL = torch.tensor([[0.0, 0.5, -1.0]])


@pytest.mark.parametrize(("weight", "expected"), [(0.0, UNCONDITIONAL), (1.0, CONDITIONAL)])
def test_weights_0_and_1_give_either_logits(weight: float, expected: torch.Tensor):
    torch.testing.assert_close(guided(CONDITIONAL, UNCONDITIONAL, weight), expected)


def test_a_weight_above_1_moves_further_the_same_way():
    assert guided(CONDITIONAL, UNCONDITIONAL, 3.0).tolist() == [[3.0, -1.0, -1.0]]


def test_a_code_that_the_conditions_rule_out_stays_impossible():
    conditional = torch.tensor([[-torch.inf, 0.0], [-torch.inf, 0.0]])
    unconditional = torch.tensor([[-torch.inf, 0.0], [1.0, 0.0]])
    found = guided(conditional, unconditional, 2.0)
    assert found.tolist() == [[-torch.inf, 0.0], [-torch.inf, 0.0]]


@pytest.mark.parametrize("weight", [-1.0, 0.3, 2.0, 7.5])
def test_log_probabilities_are_on_the_line_through_both(weight: float, generator: torch.Generator):
    conditional, unconditional = torch.randn(2, 4, 3, generator=generator)
    found = guided(conditional, unconditional, weight)
    torch.testing.assert_close(found, weight * conditional + (1 - weight) * unconditional)


def test_a_constant_added_to_the_logits_changes_no_probability(generator: torch.Generator):
    conditional, unconditional = torch.randn(2, 4, 3, generator=generator)
    shifted = guided(conditional + 5, unconditional - 3, 2.5).softmax(1)
    torch.testing.assert_close(shifted, guided(conditional, unconditional, 2.5).softmax(1))


def test_where_conditions_say_nothing_no_weight_changes_anything(generator: torch.Generator):
    logits = torch.randn(4, 3, generator=generator)
    for weight in (0.0, 1.0, 9.0):
        torch.testing.assert_close(guided(logits, logits, weight), logits)
