import pytest
import torch

from layerdag.models.autoregressive._encoder import token_dropout


def test_hidden_tokens_are_whole_and_about_as_many_as_asked():
    hidden = token_dropout(torch.ones(2000, 3), 0.2, torch.Generator().manual_seed(0))
    assert (hidden.sum(1) == 0).float().mean() == pytest.approx(0.2, abs=0.03)
    assert set(hidden.sum(1).tolist()) == {0.0, 3.0}


def test_no_token_is_hidden_while_sampling():
    assert token_dropout(torch.ones(50, 3), 0.2, None).all()
