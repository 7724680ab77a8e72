"""Baselines: one interface, graphs without cycles, the same seed the same graphs."""

import itertools

import numpy as np
import pytest
import torch
from benchmark_tables import diffusion, dvae, language_model, markov, recipes, recurrent, resampler

from layerdag.dag.dag import DAG, graph_hash
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.datasets.settings import LatentPreferentialConfig

FITS = {
    "resampler": resampler.fit_resampler,
    "markov": markov.fit_markov,
    "recurrent": recurrent.fit_recurrent,
    "language_model": language_model.fit_language_model,
    "diffusion": diffusion.fit_diffusion,
    "dvae": dvae.fit_dvae,
    "recipes": recipes.fit_recipes,
}
LEARNED = ("recurrent", "language_model", "diffusion", "dvae")


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    return load_latent_preferential(
        LatentPreferentialConfig(num_train=8, num_val=2, num_test=2)
    ).conditioned_on(())


def hashes(dags: list[DAG | None]) -> list[str | None]:
    return [None if dag is None else graph_hash(dag) for dag in dags]


@pytest.mark.parametrize("name", FITS)
def test_a_baseline_gives_graphs_that_follow_from_the_seed(name, data):
    fitted = FITS[name](data, 0.01, 0)
    one, again, other = (hashes(fitted.sample(6, seed)) for seed in (1, 1, 2))
    assert one == again != other
    for dag in fitted.sample(6, 1):
        assert dag is None or dag.check().x_NA.max() <= 2


@pytest.mark.parametrize("name", LEARNED)
def test_what_learns_says_its_size_and_steps(name, data):
    fitted = FITS[name](data, 0.01, 0, width=16 if name != "language_model" else 32)
    assert fitted.parameters > 1000
    assert fitted.steps >= 1


def test_the_resampler_repeats_training_graphs(data):
    known = {graph_hash(dag) for dag in data.graphs["train"]}
    assert set(hashes(FITS["resampler"](data, 0, 0).sample(20, 0))) <= known


def test_markov_tables_keep_to_what_they_counted(data):
    """Every layer is as wide as some training layer after one of the same width."""
    pairs = set()
    for dag in data.graphs["train"]:
        sizes = [0, *torch.bincount(dag.layer_N).tolist(), 0]
        pairs |= set(itertools.pairwise(sizes))
    for dag in FITS["markov"](data, 0, 0).sample(10, 3):
        sizes = [0, *torch.bincount(dag.layer_N).tolist()]
        assert set(itertools.pairwise(sizes)) <= pairs


def test_tokens_are_read_back_as_the_graph(data):
    codes = language_model.Codes(2, 64)
    for dag in data.graphs["train"]:
        tokens = codes.write(dag)
        assert tokens[-1] == codes.end
        assert graph_hash(codes.read(tokens[:-1])) == graph_hash(dag)


def test_no_token_may_follow_that_gives_a_cycle_or_a_double_edge():
    codes = language_model.Codes(2, 5)
    first, later = codes.allowed(torch.tensor([0, 3]), torch.tensor([0, 1])).tolist()
    assert first == [True, True, False, *[False] * 5]  # an empty graph cannot end
    assert later == [True, True, True, True, *[False] * 4]


def test_noise_goes_to_the_marginal_and_is_none_at_the_start():
    chain = diffusion.Diffusion(None, torch.tensor([0.5, 0.5]), 0.2, np.array([4]), 10)
    keep = chain.keep(torch.tensor([0.0, 5.0, 10.0]))
    assert keep[0] > 0.99
    assert keep[0] > keep[1] > keep[2] >= 0
    code = torch.zeros(2000, dtype=torch.int64)
    noised = diffusion._noised(code, torch.tensor(0.0), torch.tensor([0.25, 0.75]))
    assert noised.float().mean() == pytest.approx(0.75, abs=0.05)
