import torch

from layerdag.models.layers import (
    segment_log_sum_exp,
    segment_max,
    segment_mean,
    segment_pointers,
    segment_ranges,
    to_float32,
)


def test_long_sums_of_half_precision_numbers_are_made_in_single_precision():
    ones = torch.ones(1000, 1, dtype=torch.bfloat16)
    total = (
        to_float32(ones).new_zeros(1, 1).index_add(0, torch.zeros(1000).long(), to_float32(ones))
    )
    assert total.item() == 1000
    assert to_float32(torch.ones(1, dtype=torch.float64)).dtype == torch.float64


def test_ranges_are_laid_end_to_end():
    segment, value = segment_ranges(torch.tensor([5, 0, 7]), torch.tensor([2, 0, 3]))
    assert segment.tolist() == [0, 0, 2, 2, 2]
    assert value.tolist() == [5, 6, 7, 8, 9]


VALUES = torch.tensor([[1.0, -2.0], [3.0, 4.0], [5.0, 0.5]])
GROUPS = torch.tensor([0, 0, 2])


def test_the_mean_of_an_empty_group_is_zero():
    found = segment_mean(VALUES, GROUPS, torch.tensor([2, 0, 1]))
    assert found.tolist() == [[2.0, 1.0], [0.0, 0.0], [5.0, 0.5]]


def test_a_mean_of_half_precision_rows_is_not_rounded_on_the_way():
    rows = torch.ones(1000, 1, dtype=torch.bfloat16)
    found = segment_mean(rows, torch.zeros(1000, dtype=torch.int64), torch.tensor([1000]))
    assert found.item() == 1.0


def test_the_maximum_of_an_empty_group_is_minus_infinity():
    found = segment_max(VALUES, GROUPS, 3)
    assert found.tolist() == [[3.0, 4.0], [-torch.inf, -torch.inf], [5.0, 0.5]]


def test_log_sum_exp_adds_in_the_log_domain_and_does_not_overflow():
    rows = torch.log(torch.tensor([[1.0], [2.0], [5.0]])) + 500
    group = torch.tensor([0, 0, 1])
    found = segment_log_sum_exp(rows, group, segment_max(rows, group, 2))
    torch.testing.assert_close((found - 500).exp(), torch.tensor([[3.0], [5.0]]), rtol=1e-4, atol=0)


def test_the_gradient_of_log_sum_exp_is_the_softmax_of_its_group():
    rows = VALUES.clone().requires_grad_()
    group = torch.tensor([0, 0, 1])
    segment_log_sum_exp(rows, group, segment_max(rows, group, 2)).sum().backward()
    wanted = torch.cat([VALUES[:2].softmax(0), torch.ones(1, 2)])
    torch.testing.assert_close(rows.grad, wanted)


def test_pointers_start_with_zero_and_end_with_the_number_of_rows():
    assert segment_pointers(torch.tensor([2, 0, 3])).tolist() == [0, 2, 2, 5]
