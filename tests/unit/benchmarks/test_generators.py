"""The table of all generators: its rule, its figures, its data sets, and its page."""

from typing import Any

import pytest
import table_records
import torch
from benchmark_tables import (
    base,
    generator_figures,
    generator_page,
    generator_tasks,
    generators,
    overlap,
    runs,
)

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.datasets.settings import CorpusConfig, LatentPreferentialConfig


def dag(kinds: list[int], edges: list[tuple[int, int]]) -> DAG:
    edge_index_2E = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    return DAG.build(torch.tensor(kinds)[:, None], edge_index_2E)


TRAIN = [dag([0, 1, 2], [(0, 1), (1, 2)]), dag([0, 1, 1, 2], [(0, 1), (0, 2), (1, 3), (2, 3)])]


@pytest.mark.parametrize(
    ("kinds", "edges", "valid"),
    [
        ([0, 1, 1, 1, 2], [(0, 1), (0, 2), (1, 3), (2, 4), (3, 4)], True),
        ([0, 1, 2, 0], [(0, 1), (1, 2)], False),  # two components
        ([0, 1, 1, 2], [(0, 1), (0, 2), (1, 3)], False),  # two sinks
        ([0, 2, 1, 2], [(0, 1), (1, 2), (2, 3)], False),  # 2 has no children
        ([0, 1, 1, 1, 2], [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)], False),  # three
        ([0, 3, 2], [(0, 1), (1, 2)], False),  # nobody knows 3
    ],
)
def test_valid_is_what_training_graphs_have_in_common(kinds, edges, valid):
    assert generator_figures.Rule.of(TRAIN).holds(dag(kinds, edges)) is valid


def test_what_differs_between_training_graphs_is_free():
    rule = generator_figures.Rule.of([*TRAIN, dag([0, 1, 2, 2], [(0, 1), (1, 2), (1, 3)])])
    assert set(rule.constant) == {"components", "sources"}
    assert all(rule.holds(dag) for dag in TRAIN)


def test_real_graphs_are_near_and_shuffled_operators_are_not():
    data = load_latent_preferential(
        LatentPreferentialConfig(num_train=30, num_val=10, num_test=20)
    ).conditioned_on(())
    near = generator_figures.similarity(data, "test", [*data.graphs["train"][:20], None])
    constant = [d.with_columns(torch.zeros_like(d.x_NA)) for d in data.graphs["train"][:20]]
    far = generator_figures.similarity(data, "test", constant)
    assert near["local"]["neighborhood_novelty:1"][0] == 0
    assert far["ratios"][f"attribute:{data.schema.attributes[0].name}"] > 2
    assert near["ratio"] < far["ratio"]
    assert near["local"]["type_hashes"][0] < far["local"]["type_hashes"][0]
    assert generator_figures.similarity(data, "test", [None]) == {
        "ratio": None,
        "ratios": {},
        "local": {},
        "shared": None,
    }


CHAIN = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_a_copy_is_shared_whole_and_a_graph_of_other_operators_not_at_all():
    train = [dag([0, 1, 2, 3, 4, 5], CHAIN), dag([5, 5, 5], [(0, 1), (1, 2)])]
    assert overlap.shared_with_one(train, [train[0], dag([6], [])]).tolist() == [1.0, 0.0]


def test_parts_of_one_training_graph_are_shared_as_often_as_it_has_them():
    train = [dag([0, 1, 2], [(0, 1), (1, 2)]), dag([3, 4], [(0, 1)])]
    both = dag([0, 1, 2, 3, 4], [(0, 1), (1, 2), (3, 4)])
    assert overlap.shared_with_one(train, [both]).tolist() == [3 / 5]
    assert overlap.shared_with_one([dag([7, 7], [])], [dag([7, 7, 7, 7], [])]).tolist() == [0.5]


def test_a_change_in_the_middle_counts_for_what_sees_it():
    train, changed = dag([0, 1, 2, 3, 4, 5], CHAIN), dag([0, 1, 2, 9, 4, 5], CHAIN)
    assert overlap.shared_with_one([train], [changed]).tolist() == [1 / 6]  # radius 2: node 0


def test_generators_see_operators_and_edges_alone():
    whole = load_corpus(CorpusConfig(families=("mlp",), max_nodes=60))
    data = generator_tasks.operators_alone(whole)
    assert [attribute.name for attribute in data.schema.attributes] == ["op"]
    sizes = data.schema.sizes()
    assert (sizes.edge_types, sizes.numeric_conditions, sizes.category_conditions) == (1, 0, ())
    first, before = data.graphs["train"][0].check(), whole.graphs["train"][0]
    assert first.conditions == {}
    assert torch.equal(first.x_NA[:, 0], before.x_NA[:, 0])
    assert torch.equal(first.edge_index_2E, before.edge_index_2E)
    assert int(first.edge_type_E.max()) == 0
    short = generator_tasks.first_graphs(data, 3)
    assert len(short.graphs["train"]) == len(short.names["train"]) == 3
    assert len(short.graphs["test"]) == len(data.graphs["test"])


def test_without_folders_jobs_are_left():
    tasks = generator_tasks.tasks_in(base.NOWHERE)
    assert [task.name for task in tasks] == ["jobs"]


def test_all_that_learns_has_as_many_trials():
    counts = {learner.name: len(learner.trials) for learner in generators.LEARNERS}
    assert {name for name, count in counts.items() if count == 1} == {
        "resampler",
        "recipes",
        "markov",
    }
    assert set(counts.values()) == {1, 3}


@pytest.mark.slow
def test_wide_baselines_have_about_the_parameters_of_fast():
    data = generator_tasks.operators_alone(
        load_latent_preferential(
            LatentPreferentialConfig(num_train=4, num_val=2, num_test=2)
        ).conditioned_on(())
    )
    known = {learner.name: learner for learner in generators.LEARNERS}
    for name in ("recurrent", "language_model", "diffusion", "dvae"):
        fitted = known[name].fit(data, 0.001, 0, **known[name].trials[0])
        assert 450_000 < fitted.parameters < 800_000, name


def judged(ratio: float, novelty: float, vun: float) -> dict[str, Any]:
    local = {name: [0.5, 0.4, 0.6, 0.25] for name in generator_figures.LOCAL}
    local["neighborhood_novelty:1"] = [novelty, None, None, 0.1]
    figures = {"valid": 0.5, "vun": vun, "ratio": ratio, "local": local, "shared": [0.4, 0.01]}
    return {"samples": 100, **figures}


def record(learner: str, ratio: float, novelty: float, vun: float, **changes: Any) -> runs.Record:
    config = {"task": "jobs", "part": "final", "seconds": 30.0, **changes}
    figures = {**judged(ratio, novelty, vun), "parameters": 1234, "steps": 70}
    figures["sampling_seconds"] = 0.012
    return table_records.record("generators", f"{learner}-0", figures, config, learner=learner)


@pytest.fixture
def text() -> str:
    made = [
        record("real", 1.0, 0.1, 0.9, part="real"),
        record("fast", 1.2, 0.12, 0.8),
        record("resampler", 0.9, 0.1, 0.0),
        record("markov", 1.1, 0.01, 0.7),
        record("fast", 1.3, 0.1, 0.8, part="trial", seconds=9.0),
    ]
    titles = {"fast": "`fast`", "resampler": "copies", "markov": "Markov", "dvae": "D-VAE"}
    return generator_page.page_of("generators", made, titles)


def test_the_best_of_what_is_new_is_bold(text):
    (fast,) = (line for line in text.splitlines() if line.startswith("| `fast` | **"))
    (markov,) = (line for line in text.splitlines() if line.startswith("| Markov"))
    (copies,) = (line for line in text.splitlines() if line.startswith("| copies"))
    assert "**80.0 [71, 87]**" in fast
    assert "**12.0**" in fast  # 0.02 from real graphs, and 0.09 of the Markov tables
    assert "**1.10**" in markov
    assert "**" not in copies
    assert "0.50 (2.00)" in copies


def test_the_page_says_what_was_not_run(text):
    assert "Not run: D-VAE." in text
    assert "1.30" not in text


def test_how_many_trials_there_were_is_counted():
    def trials(count: int) -> list[runs.Record]:
        return [record("fast", 1.3, 0.1, 0.8, part="trial") for _ in range(count)]

    assert "by no short fits" in generator_page._choice([record("fast", 1.2, 0.1, 0.8)])
    assert "by two short fits" in generator_page._choice(trials(2))
    assert "a smaller size, then at another learning rate;" in generator_page._choice(trials(3))


def test_reasons_are_of_learners_that_there_are():
    names = {learner.name for learner in generators.LEARNERS}
    for reasons in generator_tasks.LEFT_OUT.values():
        assert set(reasons) <= names


def test_trials_are_chosen_by_the_least_ratio():
    def trial(number: int, ratio: float | None) -> runs.Record:
        run = runs.Run(f"t{number}", "fast", 0, {"trial": number})
        return runs.Record("a", run, {"vun": 1.0, "ratio": ratio}, 0, 0)

    assert base.best_trial([trial(0, None), trial(1, 1.5), trial(2, 2.5)]) == 1
