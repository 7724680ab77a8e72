import numpy as np
import pytest
import torch
from raw_graphs import chain
from torch import nn

from layerdag.datasets.schema import GraphSchema
from layerdag.errors import UsageError
from layerdag.evaluation.privacy import Attack, Verdict, likelihood_attack
from layerdag.evaluation.privacy._membership import area_under_curve, graph_losses
from layerdag.evaluation.privacy.attacks import sample_attacks
from layerdag.graph import DAG, DAGBatch, random_dag
from layerdag.models import DAGModel, LossTerm, SampleRequest, SampleResult

SAVED_AS = {"what": "description", "caught": "true_positive_rate", "others": "non_members"}


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3], [4, 3]) for _ in range(count)]


def test_the_area_under_the_curve_counts_pairs_and_ties_half() -> None:
    assert area_under_curve(np.array([3.0, 1.0]), np.array([2.0, 1.0])) == (1 + 1 + 0 + 0.5) / 4


def test_a_generator_that_copies_is_caught_by_both_attacks(rng: np.random.Generator) -> None:
    train, held_out = graphs(rng, 40), graphs(rng, 40)
    for attack in sample_attacks(train, held_out, train):
        assert attack.auc > 0.95
        assert attack.true_positive_rate > 0.9
        assert attack.interval.low < attack.auc <= attack.interval.high <= 1
        assert attack.leaks


def test_a_generator_that_copies_one_graph_in_four_is_caught(rng: np.random.Generator) -> None:
    train, held_out = graphs(rng, 80), graphs(rng, 160)
    generated = train[:20] + graphs(rng, 60)
    for attack in sample_attacks(train, held_out, generated):
        assert attack.leaks
        assert 0.55 < attack.auc < 0.8


def test_a_generator_that_never_saw_the_training_graphs_is_not_accused() -> None:
    accused = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        train, held_out, generated = graphs(rng, 40), graphs(rng, 60), graphs(rng, 40)
        accused += [attack.leaks for attack in sample_attacks(train, held_out, generated)]
    # 20 attacks at one chance in 40: more than 4 false alarms have a chance of 0.03 %.
    assert sum(accused) <= 4


def test_attacks_do_not_depend_on_the_order_of_nodes(rng: np.random.Generator) -> None:
    train, held_out, generated = graphs(rng, 8), graphs(rng, 8), graphs(rng, 8)
    mixed = [g.permuted(torch.from_numpy(rng.permutation(g.num_nodes))) for g in generated]
    first, second = (sample_attacks(train, held_out, made) for made in (generated, mixed))
    assert [a.auc for a in first] == [a.auc for a in second]


class Memory(DAGModel):
    """A model that knows some graphs by heart, by the first codes of their nodes."""

    def __init__(self, known: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.known = known
        self.weight = nn.Parameter(torch.zeros(1))

    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        noise = torch.rand((), generator=generator)
        cost = 0.1 if tuple(batch.x_NA[:, 0].tolist()) in self.known else 1.0
        count = torch.tensor(batch.num_nodes)
        return {"node": LossTerm((cost + noise) * count, count)}

    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        return {("node",): [self.weight]}

    def sample(self, request: SampleRequest) -> SampleResult:
        raise AssertionError("An attack on likelihoods samples nothing.")


def paths(rng: np.random.Generator, count: int) -> tuple[GraphSchema, list[DAG]]:
    names = ["".join(rng.choice(list("abcdefgh"), 12)) for _ in range(count)]
    raws = [chain(f"g{i}", name) for i, name in enumerate(names)]
    schema = GraphSchema.fit("flow", raws)
    return schema, [schema.encode(raw) for raw in raws]


def test_a_model_that_knows_its_training_graphs_by_heart_is_caught_by_its_likelihood(
    rng: np.random.Generator,
) -> None:
    schema, dags = paths(rng, 60)
    train, held_out = dags[:30], dags[30:]
    heard = Memory([tuple(dag.x_NA[:, 0].tolist()) for dag in train])
    assert likelihood_attack(heard, schema, train, held_out).auc == 1.0
    deaf = likelihood_attack(Memory([]), schema, train, held_out)
    assert deaf.auc == 0.5
    assert not deaf.leaks


def test_losses_of_a_graph_depend_on_it_alone(rng: np.random.Generator) -> None:
    schema, dags = paths(rng, 5)
    model = Memory([])
    model.train()
    together = graph_losses(model, schema, dags, seed=3)
    assert together[2] == graph_losses(model, schema, dags[2:3], seed=3)[0]
    assert model.training


def test_an_empty_set_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(UsageError, match=r"attacks need .* graphs; the held-out set is empty"):
        sample_attacks(graphs(rng, 9), [], graphs(rng, 9))


def test_few_held_out_graphs_are_too_few_to_tell_and_no_error() -> None:
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        found += sample_attacks(graphs(rng, 26), graphs(rng, 6), graphs(rng, 30), seed)
    assert len(found) == 20
    assert all(attack.verdict is not Verdict.CHANCE for attack in found)
    # The bootstrap of six graphs alone accuses more often than one time in 40.
    assert sum(attack.leaks for attack in found) <= 3
    needs = [attack.need for attack in found if attack.need is not None]
    assert needs
    assert all(need.found == 6 < need.count for need in needs)
    near = [attack.need for attack in found if abs(attack.auc - 0.5) < 0.05 and attack.need]
    assert all(need.count > 100 for need in near)


def test_one_held_out_graph_leaves_the_attack_that_needs_one(rng: np.random.Generator) -> None:
    (attack,) = sample_attacks(graphs(rng, 5), graphs(rng, 1), graphs(rng, 3))
    assert attack.name == "nearest_sample"
    assert "too few graphs to tell (1 held-out graphs" in attack.in_words()


def test_every_held_out_graph_is_scored_by_both_attacks(rng: np.random.Generator) -> None:
    for attack in sample_attacks(graphs(rng, 12), graphs(rng, 9), graphs(rng, 5)):
        assert (attack.members, attack.non_members) == (12, 9)


def test_what_is_saved_of_an_attack_makes_it_again(rng: np.random.Generator) -> None:
    attack = sample_attacks(graphs(rng, 9), graphs(rng, 8), graphs(rng, 7))[0]
    saved = attack.to_dict()
    assert (saved["caught"], saved["others"]) == (attack.true_positive_rate, 8)
    fields = {field: saved[key] for key, field in SAVED_AS.items()}
    same = {name: value for name, value in saved.items() if name not in SAVED_AS}
    assert Attack(**same, **fields) == attack


def test_too_few_graphs_say_how_many_it_would_take(rng: np.random.Generator) -> None:
    for attack in sample_attacks(graphs(rng, 12), graphs(rng, 12), graphs(rng, 12)):
        assert attack.verdict is Verdict.TOO_FEW
        assert attack.need is not None
        assert attack.in_words() == f"{Verdict.TOO_FEW.value} ({attack.need.in_words()})"
        assert not attack.leaks


def test_a_verdict_that_stands_needs_no_more_graphs(rng: np.random.Generator) -> None:
    train, held_out = graphs(rng, 40), graphs(rng, 40)
    for attack in sample_attacks(train, held_out, train):
        assert attack.need is None
        assert attack.in_words() == Verdict.LEAKS.value


def test_an_attack_as_plain_data_keeps_the_names_that_reports_have(
    rng: np.random.Generator,
) -> None:
    attack, *_ = sample_attacks(graphs(rng, 20), graphs(rng, 15), graphs(rng, 20))
    plain = attack.to_dict()
    assert {name: plain[name] for name in ("members", "others")} == {"members": 20, "others": 15}
    assert plain["what"] == attack.description
    assert plain["caught"] == attack.true_positive_rate
