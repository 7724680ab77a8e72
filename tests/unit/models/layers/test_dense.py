import pytest
import torch

from layerdag.models.layers import dropout, row_dropout


def test_dropped_rows_are_whole_and_about_as_many_as_asked():
    hidden = row_dropout(torch.ones(2000, 3), 0.2, torch.Generator().manual_seed(0))
    assert (hidden.sum(1) == 0).float().mean() == pytest.approx(0.2, abs=0.03)
    assert set(hidden.sum(1).tolist()) == {0.0, 3.0}


def test_without_a_generator_no_row_is_dropped():
    assert row_dropout(torch.ones(50, 3), 0.2, None).all()


def test_dropout_keeps_the_mean_and_drops_about_as_many_as_asked():
    dropped = dropout(torch.ones(200, 50), 0.25, torch.Generator().manual_seed(0))
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.02)
    torch.testing.assert_close(dropped.unique(), torch.tensor([0.0, 4 / 3]))


@pytest.mark.parametrize(("rate", "generator"), [(0.3, None), (0.0, torch.Generator())])
def test_dropout_without_noise_returns_its_input(rate: float, generator: torch.Generator | None):
    rows = torch.ones(3, 2)
    assert dropout(rows, rate, generator) is rows
    assert row_dropout(rows, rate, generator) is rows
