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
