"""The judge reads conditions off graphs, and sampling by candidates follows what it says."""

from dataclasses import replace

import pytest
import torch

from layerdag.errors import UsageError
from layerdag.graph.batch import DAGBatch
from layerdag.model.base import SampleRequest, SampleResult
from layerdag.model.judge import Judge, _log_sizes, resample
from tests.unit.model.fast_models import SIZES, collated, request, small_dags, small_model


def batch_labelled_by_size(count: int) -> DAGBatch:
    """Graphs whose number is their standardised number of nodes, and whose category its third."""
    batch = collated(small_dags(count))
    nodes_B = batch.node_ptr.diff().float()
    label_B = (nodes_B - nodes_B.mean()) / nodes_B.std()
    rank_B = label_B.argsort().argsort()
    return replace(
        batch, numeric_BC=label_B[:, None], category_BM=(rank_B * 3 // count)[:, None].long()
    )


def trained_judge(batch: DAGBatch, steps: int = 80) -> Judge:
    torch.manual_seed(0)
    judge = Judge(SIZES, width=32, rounds=2)
    optimiser = torch.optim.Adam(judge.parameters(), lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        judge.loss(batch, None).mean().backward()
        optimiser.step()
    return judge.eval()


def test_it_learns_to_tell_conditions_from_graphs():
    batch = batch_labelled_by_size(16)
    judge = trained_judge(batch)
    right_B = judge.log_likelihood(batch)
    shifted = replace(
        batch, numeric_BC=batch.numeric_BC.roll(8, 0), category_BM=batch.category_BM.roll(8, 0)
    )
    assert right_B.mean() > judge.log_likelihood(shifted).mean() + 3


def test_a_number_known_well_pulls_no_harder_than_its_spread_asks():
    """The gradient of a mean is error over spread, not over its square (beta-NLL, beta 1/2)."""
    value_BC = torch.tensor([[0.5, 0.5]])
    answer_BC2 = torch.tensor([[0.0, 0.0, -8.0, 8.0]], requires_grad=True)
    log_prob = Judge._numbers(answer_BC2, value_BC).sum()
    sharp, wide = (torch.distributions.Normal(0.0, spread) for spread in (0.101, 2.999))
    expected = sharp.log_prob(torch.tensor(0.5)) + wide.log_prob(torch.tensor(0.5))
    assert log_prob.item() == pytest.approx(expected.item(), rel=1e-2)
    (gradient_BC2,) = torch.autograd.grad(log_prob, answer_BC2)
    assert gradient_BC2[0, :2].tolist() == pytest.approx([0.5 / 0.101, 0.5 / 2.999], rel=1e-2)


def test_it_computes_in_single_precision_under_autocast():
    batch = batch_labelled_by_size(6)
    judge = Judge(SIZES).eval()
    with torch.autocast("cpu", torch.bfloat16):
        low_B, low_BC = judge.log_likelihood(batch), judge.means(batch)
    assert torch.equal(low_B, judge.log_likelihood(batch))
    assert torch.equal(low_BC, judge.means(batch))


def test_it_is_told_the_sizes_of_each_graph():
    dags = small_dags(4)
    sizes_B3 = [[dag.num_nodes, int(dag.layers().max()) + 1, dag.num_edges + 1] for dag in dags]
    assert torch.allclose(_log_sizes(collated(dags)), torch.tensor(sizes_B3).log() - 3.0)


def test_unknown_conditions_count_nothing():
    batch = batch_labelled_by_size(4)
    unknown = replace(
        batch,
        numeric_BC=torch.full_like(batch.numeric_BC, torch.nan),
        category_BM=torch.full_like(batch.category_BM, -1),
    )
    assert Judge(SIZES).log_likelihood(unknown).tolist() == [0.0] * 4


def test_a_graph_is_judged_alike_in_any_batch():
    dags = small_dags(5)
    judge = Judge(SIZES).eval()
    together_B = judge.log_likelihood(collated(dags))
    batch = collated(dags)
    for index, dag in enumerate(dags):
        alone = replace(
            collated([dag]),
            numeric_BC=batch.numeric_BC[index : index + 1],
            category_BM=batch.category_BM[index : index + 1],
        )
        assert judge.log_likelihood(alone).item() == pytest.approx(
            together_B[index].item(), rel=1e-4
        )


def from_a_list(dags: list) -> "callable":
    """A sampler that hands out given graphs in turn."""

    def sample(asked: SampleRequest) -> SampleResult:
        drawn = tuple(dags[i % len(dags)] for i in range(len(asked.seeds)))
        return SampleResult(drawn, (False,) * len(drawn))

    return sample


def test_the_chosen_candidate_fits_the_conditions():
    batch = batch_labelled_by_size(16)
    dags, judge = small_dags(16), trained_judge(batch)
    largest = int(batch.numeric_BC.argmax())
    asked = request(
        8,
        numeric_BC=batch.numeric_BC[largest].repeat(8, 1),
        category_BM=batch.category_BM[largest].repeat(8, 1),
        candidates=16,
    )
    chosen = resample(judge, asked, from_a_list(dags)).dags
    mean = sum(dag.num_nodes for dag in dags) / len(dags)
    assert len(chosen) == 8
    assert sum(dag.num_nodes for dag in chosen) / 8 > mean


def test_one_candidate_is_plain_sampling_and_several_contain_it():
    model = small_model(small_dags())
    plain = model.sample(request(3))
    assert [d.x_NA.tolist() for d in model.sample(request(3, candidates=1)).dags] == [
        d.x_NA.tolist() for d in plain.dags
    ]
    seen: list[tuple[int, ...]] = []

    def remember(asked: SampleRequest) -> SampleResult:
        seen.append(asked.seeds)
        return model.sample(asked)

    assert model.judge is not None
    resample(model.judge, request(3, candidates=2), remember)
    assert seen[0][::2] == request(3).seeds
    assert len(set(seen[0])) == 6


def test_a_graph_with_candidates_does_not_depend_on_its_batch():
    model = small_model(small_dags())
    together = model.sample(request(3, candidates=3)).dags
    alone = model.sample(request(1, candidates=3)).dags
    assert alone[0].x_NA.tolist() == together[0].x_NA.tolist()
    assert alone[0].edge_index_2E.tolist() == together[0].edge_index_2E.tolist()


def test_truncated_candidates_are_kept_only_if_all_are():
    dags, judge = small_dags(4), Judge(SIZES).eval()

    def sample(asked: SampleRequest) -> SampleResult:
        cut = tuple(i % 4 != 2 for i in range(len(asked.seeds)))
        return SampleResult(tuple(dags[i % 4] for i in range(len(asked.seeds))), cut)

    result = resample(judge, request(6, candidates=4), sample)
    assert result.truncated == (False,) * 6
    assert all(dag is dags[2] for dag in result.dags)


def test_no_candidate_at_all_is_refused():
    with pytest.raises(UsageError, match="0 candidates"):
        small_model(small_dags()).sample(request(1, candidates=0))
