import pytest
import torch

from layerdag.models.layers import SumEmbedding, sinusoids


def test_a_sum_embedding_adds_one_row_a_feature():
    embedding = SumEmbedding([2, 3], width=4)
    found = embedding(torch.tensor([[1, 2]]))[0]
    assert torch.allclose(found, embedding.weight[1] + embedding.weight[4])


def test_the_reference_name_of_the_weights_changes_nothing_else():
    embedding = SumEmbedding((3, 2), 4, std=0.5, name="table")
    found = embedding(torch.tensor([[2, 1], [0, 0]]))
    torch.testing.assert_close(found[0], embedding.table[2] + embedding.table[3 + 1])
    torch.testing.assert_close(found[1], embedding.table[0] + embedding.table[3])
    assert list(embedding.state_dict()) == ["table"]


def test_a_sum_of_initial_embeddings_has_the_asked_spread(generator: torch.Generator):
    torch.manual_seed(0)
    codes = torch.randint(50, (400, 9), generator=generator)
    with torch.no_grad():
        nine, one = SumEmbedding([50] * 9, 64), SumEmbedding([50], 64, std=0.5)
        assert float(nine(codes).std()) == pytest.approx(1.0, rel=0.1)
        assert float(one(codes[:, :1]).std()) == pytest.approx(0.5, rel=0.1)


def test_sinusoids_tell_all_times_apart():
    vectors = sinusoids(torch.arange(1001.0), 16)
    assert (torch.cdist(vectors, vectors) + torch.eye(1001)).min() > 1e-3
