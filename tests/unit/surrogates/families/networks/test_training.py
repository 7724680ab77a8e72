import numpy as np
import pytest
import torch

from layerdag.graph import GraphSizes
from layerdag.surrogates import Labeled
from layerdag.surrogates.families import NetworkSettings, fit_message_passing, ranking_loss
from layerdag.surrogates.families.networks._training import loss_of


def test_the_ranking_loss_falls_as_pairs_come_into_order() -> None:
    target_B = torch.tensor([1.0, 2.0, 3.0])
    right, wrong = ranking_loss(target_B * 5, target_B), ranking_loss(-target_B * 5, target_B)
    assert right < ranking_loss(torch.zeros(3), target_B) < wrong
    torch.testing.assert_close(ranking_loss(torch.zeros(3), target_B), torch.log(torch.tensor(2.0)))


def test_pairs_of_equal_targets_have_no_order() -> None:
    target_B = torch.ones(4)
    assert ranking_loss(torch.randn(4), target_B) == 0
    predicted_B = torch.tensor([0.0, 9.0, 4.0])
    tied_B = torch.tensor([1.0, 1.0, 2.0])
    expected = torch.nn.functional.softplus(-torch.tensor([4.0, -5.0])).mean()
    torch.testing.assert_close(ranking_loss(predicted_B, tied_B), expected)


def test_a_missing_target_moves_its_output_nowhere_and_the_others_still_teach() -> None:
    nan = float("nan")
    target_BT = torch.tensor([[1.0, nan, nan], [0.0, 2.0, nan], [nan, 1.0, nan], [2.0, nan, nan]])
    predicted_BT = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    predicted_BT.requires_grad_()
    loss = loss_of(predicted_BT, target_BT, ranking_weight=0.5)
    loss.backward()
    gradient_BT = predicted_BT.grad
    assert gradient_BT is not None
    assert torch.equal(gradient_BT != 0, target_BT.isfinite())
    alone = [
        loss_of(predicted_BT[rows][:, [column]], target_BT[rows][:, [column]], 0.5)
        for column, rows in ((0, [0, 1, 3]), (1, [1, 2]))
    ]
    torch.testing.assert_close(loss, alone[0] + alone[1])


def test_the_ranking_loss_takes_part_in_a_fit_when_asked(
    real: Labeled, test_set: Labeled, sizes: GraphSizes
) -> None:
    plain = NetworkSettings(width=16, rounds=1, epochs=10, batch_size=8, learning_rate=1e-2)
    ranked = NetworkSettings(
        width=16, rounds=1, epochs=10, batch_size=8, learning_rate=1e-2, ranking_weight=1.0
    )
    found = [
        fit_message_passing(real.dags, real.target_B, sizes, settings=one).predict(test_set.dags)
        for one in (plain, ranked)
    ]
    assert found[0].tolist() != found[1].tolist()
    assert np.corrcoef(found[1], test_set.target_B)[0, 1] > 0.7


def test_settings_of_a_file_that_knows_no_ranking_are_those_of_before() -> None:
    assert NetworkSettings(**{"width": 8, "rounds": 1}).ranking_weight == pytest.approx(0.0)
