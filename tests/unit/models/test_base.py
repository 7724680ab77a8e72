"""What every model promises, whatever it is made of."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from layerdag.errors import UsageError
from layerdag.graph import DAG, DAGBatch
from layerdag.models import DAGModel, LossTerm, SampleRequest, SampleResult


class SilentModel(DAGModel):
    """The least that a model must have: one weight, no graph."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        return {"node": LossTerm(self.weight * batch.num_nodes, torch.tensor(batch.num_nodes))}

    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        return {("node",): [self.weight]}

    def sample(self, request: SampleRequest) -> SampleResult:
        return SampleResult((), ())


def term(total: float, count: int) -> LossTerm:
    return LossTerm(torch.tensor(total), torch.tensor(count))


def asked(**changes: object) -> SampleRequest:
    none: dict[str, Tensor] = {
        "numeric_BC": torch.zeros(1, 0),
        "category_BM": torch.zeros(1, 0, dtype=torch.int64),
    }
    return SampleRequest(**none, seeds=(0,), **changes)


def test_the_mean_of_a_term_is_in_nats_per_decision():
    assert term(6.0, 4).mean() == 1.5


def test_a_term_without_decisions_has_a_mean_of_zero_not_nan():
    assert term(0.0, 0).mean() == 0.0


def test_batches_are_combined_by_their_sums_not_by_their_means():
    first, second = term(6.0, 2), term(1.0, 8)
    both = LossTerm(first.total + second.total, first.count + second.count)
    assert both.mean() == pytest.approx(0.7)
    assert both.mean() != pytest.approx(float(first.mean() + second.mean()) / 2)


def test_the_mean_passes_gradients_on_in_proportion():
    weight = torch.tensor(2.0, requires_grad=True)
    LossTerm(3 * weight, torch.tensor(6)).mean().backward()
    assert weight.grad == 0.5


def test_a_request_asks_for_one_plainly_conditioned_graph_per_seed_unless_told():
    request = asked()
    assert (request.guidance, request.best_of, request.steps) == (1.0, 1, None)
    assert (request.max_nodes, request.max_layers) == (10_000, 2_000)


def test_requests_and_results_cannot_be_changed():
    with pytest.raises(AttributeError):
        asked().seeds = (1,)
    with pytest.raises(AttributeError):
        SampleResult((), ()).dags = ()


def test_the_contract_alone_is_no_model():
    with pytest.raises(TypeError, match="abstract"):
        DAGModel()


def test_a_model_without_a_posterior_says_so_and_draws_one_graph(
    make_dag: Callable[..., DAG], make_batch: Callable[..., DAGBatch]
):
    model, batch = SilentModel(), make_batch(make_dag(2, 1))
    assert model.posterior_objectives() == ()
    assert model.log_posterior(batch) is None
    assert model.predict_numeric_conditions(batch) is None
    assert model.usual_best_of == 1


def test_a_model_that_cannot_choose_refuses_several_candidates():
    model = SilentModel()
    model.require_options(steps=None, best_of=1)
    with pytest.raises(UsageError, match=r"best_of=4 cannot be done; leave best_of out"):
        model.require_options(steps=None, best_of=4)
