import pytest
import torch
from small_models import collated, small_dags, small_model

from layerdag.errors import ConfigError
from layerdag.models.config import FastConfig
from layerdag.models.fast.model import FastLayerDAG


def totals(model: FastLayerDAG, dags: list, seed: int = 0) -> dict[str, float]:
    found = model.losses(collated(dags), torch.Generator().manual_seed(seed))
    return {name: term.total.item() for name, term in found.items()}


def test_noise_comes_from_the_generator_alone_and_in_training_only():
    model = small_model(small_dags(), dropout=0.5)
    assert totals(model, small_dags(), seed=1) == totals(model, small_dags(), seed=2)
    model = small_model(small_dags(), dropout=0.5).train()
    assert totals(model, small_dags(), seed=1) == totals(model, small_dags(), seed=1)
    assert totals(model, small_dags(), seed=1) != totals(model, small_dags(), seed=2)


def test_the_loss_of_a_batch_is_the_sum_over_its_graphs():
    dags = small_dags(8)
    model = small_model(dags)
    batch = collated(dags)
    together = model.losses(batch, torch.Generator())
    for name, term in together.items():
        alone = 0.0
        for index, dag in enumerate(dags):
            single = collated([dag])
            changes = {
                "numeric_BC": batch.numeric_BC[index : index + 1],
                "category_BM": batch.category_BM[index : index + 1],
            }
            single = type(single)(**(vars(single) | changes))
            alone += model.losses(single, torch.Generator())[name].total.item()
        assert term.total.item() == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("plans", [True, False])
def test_every_parameter_belongs_to_one_objective_and_learns(plans):
    model = small_model(small_dags(), predict_out_degree=plans).train()
    groups = model.objective_parameters()
    listed = [parameter for group in groups.values() for parameter in group]
    assert len(listed) == len({id(p) for p in listed}) == len(list(model.parameters()))
    found = model.losses(collated(small_dags()), torch.Generator().manual_seed(0))
    sum(term.mean() for term in found.values()).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []


def test_losses_and_gradients_work_in_mixed_precision():
    model = small_model(small_dags())
    exact = model.losses(collated(small_dags()), torch.Generator())
    with torch.autocast("cpu", torch.bfloat16):
        rough = model.losses(collated(small_dags()), torch.Generator())
    sum(term.mean() for term in rough.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    for name, term in exact.items():
        assert rough[name].total.dtype == torch.float32
        torch.testing.assert_close(rough[name].total, term.total, rtol=0.01, atol=0.1)


def test_training_lowers_the_loss():
    dags = small_dags()
    model = small_model(dags)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    before = sum(totals(model, dags).values())
    for _ in range(5):
        loss = model.losses(collated(dags), torch.Generator())
        optimizer.zero_grad()
        sum(term.mean() for term in loss.values()).backward()
        optimizer.step()
    assert sum(totals(model, dags).values()) < 0.8 * before


def test_a_width_that_cannot_be_split_into_heads_is_refused():
    with pytest.raises(ConfigError, match="multiple of 32"):
        FastConfig(width=50)
