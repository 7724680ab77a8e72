"""What every model promises, whatever it is made of."""

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import ConfigError, UsageError
from layerdag.models.base import DAGModel, LossTerm, SampleRequest, SampleResult
from layerdag.models.bounds import (
    MAX_CODES,
    MAX_COLUMNS,
    require_few,
    require_valid,
)
from layerdag.models.conditions import Conditions
from layerdag.models.config import FastConfig, ReferenceConfig
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.reference.model import ReferenceLayerDAG
from layerdag.models.spec import ModelSpec, build_model, build_without_weights


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


def test_the_mean_of_a_term_is_in_nats_per_decision_and_zero_without_decisions():
    assert term(6.0, 4).mean() == 1.5
    assert term(0.0, 0).mean() == 0.0


def test_a_model_without_a_posterior_says_so_and_draws_one_graph(make_dag, make_batch):
    model, batch = SilentModel(), make_batch(make_dag(2, 1))
    assert model.posterior_objectives() == ()
    assert model.log_posterior(batch) is None
    assert model.predict_numeric_conditions(batch) is None
    assert model.default_best_of == 1


def test_a_model_that_cannot_choose_refuses_several_candidates():
    model = SilentModel()
    model.require_options(steps=None, best_of=1)
    with pytest.raises(UsageError, match=r"best_of=4 cannot be done; leave best_of out"):
        model.require_options(steps=None, best_of=4)


SIZES = GraphSizes((4, 2), edge_types=2, numeric_conditions=1, category_conditions=(3,))


@dataclass(frozen=True)
class Choice:
    """One word out of two, and a number of any size."""

    word: Literal["yes", "no"] = "yes"
    number: int = 1
    open: Literal["left", "right"] | None = None


@dataclass(frozen=True)
class Numbers:
    """A rate, and two other numbers."""

    rate: float = 0.5
    b: float = 1
    c: float | None = None


@pytest.mark.parametrize("value", [0, 1, 0.5])
def test_both_ends_are_included(value):
    require_valid("fast", "", Numbers(value), rate=(0, 1))


@pytest.mark.parametrize("value", [-1e-9, 1.000001, math.inf, -math.inf, math.nan])
def test_what_lies_outside_is_refused(value):
    with pytest.raises(ConfigError, match=r"model 'fast': 'part\.rate' must be from 0 to 1, found"):
        require_valid("fast", "part", Numbers(value), rate=(0, 1))


def test_the_first_setting_out_of_bounds_is_named_without_filling_the_message():
    with pytest.raises(ConfigError, match=r"'b' must be from 1 to 10, found 11"):
        require_valid("fast", "", Numbers(3, 11, 12), rate=(1, 10), b=(1, 10), c=(1, 10))
    with pytest.raises(ConfigError) as told:
        require_valid("fast", "", Numbers(10**400), rate=(0, 1))
    assert len(str(told.value)) < 120
    require_valid("fast", "", Numbers(), c=(1, 10))


def test_a_word_is_one_of_the_choices_and_another_is_refused_with_them():
    require_valid("fast", "", Choice("no", number=-7))
    with pytest.raises(ConfigError, match=r"'part\.word' must be 'yes' or 'no', found 'maybe'"):
        require_valid("fast", "part", Choice("maybe"))
    with pytest.raises(ConfigError, match=r"model 'fast': 'word' must be"):
        require_valid("fast", "", Choice("maybe"))
    require_valid("fast", "part", Choice(open=None))
    require_valid("fast", "part", Choice(open="left"))
    with pytest.raises(ConfigError, match=r"'part\.open' must be 'left' or 'right', found 'up'"):
        require_valid("fast", "part", Choice(open="up"))


FEW = "at least one attribute, and positive numbers of codes"
MANY = rf"{MAX_COLUMNS + 1} columns is refused; 1000 is the"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"attributes": ()}, FEW),
        ({"attributes": (4, 0)}, FEW),
        ({"edge_types": 0}, FEW),
        ({"numeric_conditions": -1}, FEW),
        ({"category_conditions": (3, 0)}, FEW),
        ({"attributes": (2,) * (MAX_COLUMNS + 1)}, MANY),
        ({"numeric_conditions": MAX_COLUMNS + 1}, MANY),
        ({"category_conditions": (2,) * (MAX_COLUMNS + 1)}, MANY),
    ],
)
def test_sizes_without_codes_or_with_too_many_columns_are_refused(changes, told):
    with pytest.raises(ConfigError, match=told):
        require_few(replace(SIZES, **changes))


@pytest.mark.parametrize("name", ["attributes", "category_conditions", "edge_types"])
def test_too_many_codes_are_refused_and_the_most_are_not(name):
    def sized(codes: int) -> GraphSizes:
        return replace(SIZES, **{name: codes if name == "edge_types" else (codes,)})

    require_few(sized(MAX_CODES))
    with pytest.raises(ConfigError, match=rf"column of {MAX_CODES + 1} codes is refused; 100000"):
        require_few(sized(MAX_CODES + 1))


KNOWN = Conditions(torch.tensor([[0.5, 1.0], [2.0, -2.0]]), torch.tensor([[1], [0]]))


def test_conditions_are_hidden_dropped_taken_and_joined_by_rows():
    unknown = KNOWN.unknown()
    assert unknown.numeric_BC.isnan().all()
    assert unknown.numeric_BC.shape == (2, 2)
    assert unknown.category_BM.tolist() == [[-1], [-1]]
    uniform = torch.tensor([[0.0, 0.9, 0.9, 0.9], [0.9, 0.9, 0.9, 0.1]])
    dropped = KNOWN.dropped(uniform, 0.2)
    assert dropped.numeric_BC.isnan().tolist() == [[True, False], [True, True]]
    assert dropped.category_BM.tolist() == [[1], [-1]]
    joined = KNOWN.of(torch.tensor([1])).followed_by(KNOWN)
    assert joined.numeric_BC[:, 0].tolist() == [2.0, 0.5, 2.0]
    assert joined.category_BM[:, 0].tolist() == [0, 1, 0]


def test_graphs_may_have_numbers_alone_categories_alone_or_nothing():
    for numbers, categories in ((2, 0), (0, 2), (0, 0)):
        plain = Conditions(torch.zeros(3, numbers), torch.zeros(3, categories, dtype=torch.int64))
        uniform = torch.full((3, numbers + categories + 1), 0.9)
        uniform[1, -1] = 0.0
        dropped = plain.dropped(uniform, 0.5)
        assert dropped.numeric_BC.isnan().any(1).tolist() == [False, bool(numbers), False]
        assert (dropped.category_BM == -1).any(1).tolist() == [False, bool(categories), False]
        assert plain.of(torch.zeros(0, dtype=torch.int64)).numeric_BC.shape == (0, numbers)


SIZES_B2 = torch.tensor([[30.0, 3.0], [70.0, 7.0]])


def test_the_sizes_asked_for_are_conditions_that_may_be_dropped():
    asked = Conditions(KNOWN.numeric_BC, KNOWN.category_BM, SIZES_B2)
    uniform = torch.tensor([[0.9, 0.9, 0.9, 0.1, 0.9, 0.9], [0.9, 0.9, 0.9, 0.9, 0.1, 0.9]])
    dropped = asked.dropped(uniform, 0.2)
    assert dropped.sizes_B2.isnan().tolist() == [[True, False], [False, True]]
    assert not dropped.numeric_BC.isnan().any()
    everything = asked.dropped(uniform.masked_fill(uniform < 0.5, 0.9).clone(), 0.95)
    assert everything.sizes_B2.isnan().all()


def test_rows_without_sizes_follow_those_with_them():
    asked = Conditions(KNOWN.numeric_BC, KNOWN.category_BM, SIZES_B2)
    joined = asked.followed_by(asked.unknown()).of(torch.tensor([1, 0, 3]))
    assert joined.known_sizes_B2[:2].tolist() == [[70.0, 7.0], [30.0, 3.0]]
    assert joined.known_sizes_B2[2].isnan().all()
    assert KNOWN.known_sizes_B2.shape == (2, 2)
    assert KNOWN.known_sizes_B2.isnan().all()


TINY: dict[str, dict[str, Any]] = {
    "fast": {"width": 32, "depth": 1},
    "reference": {
        "layer_size": {"width": 4, "rounds": 0},
        "node": {"width": 4, "heads": 1, "steps": 2},
        "edge": {"width": 4, "rounds": 0, "steps": 2},
    },
}
CLASSES = {"fast": FastLayerDAG, "reference": ReferenceLayerDAG}


@pytest.fixture
def statistics(sizes, make_dag) -> GraphStatistics:
    return GraphStatistics.measure([make_dag(2, 3, 1)], sizes)


@pytest.fixture(params=["fast", "reference"])
def spec(request, sizes, statistics) -> ModelSpec:
    return ModelSpec(request.param, sizes, statistics, TINY[request.param])


def test_a_spec_survives_its_file_and_chooses_class_and_settings(spec):
    assert ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    model = build_model(spec)
    assert type(model) is CLASSES[spec.name]
    assert model.config == spec.config
    assert isinstance(spec.config, FastConfig if spec.name == "fast" else ReferenceConfig)


def test_the_seed_alone_makes_the_weights(spec):
    one, same, other = build_model(spec, 1), build_model(spec, 1), build_model(spec, 2)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name]), name
    differ = [
        name for name, p in one.named_parameters() if not torch.equal(p, other.get_parameter(name))
    ]
    assert len(differ) > len(list(one.parameters())) / 2


def test_building_a_model_leaves_the_global_generator_alone(spec):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    build_model(spec, 99)
    assert torch.equal(torch.rand(3), wanted)


def test_a_model_without_weights_has_the_shapes_of_one_with_them(spec):
    bare, model = build_without_weights(spec), build_model(spec)
    assert {tensor.device.type for tensor in bare.state_dict().values()} == {"meta"}
    for tensors in (DAGModel.state_dict, lambda m: dict(m.named_parameters())):
        expected = {name: (t.shape, t.dtype) for name, t in tensors(model).items()}
        assert {name: (t.shape, t.dtype) for name, t in tensors(bare).items()} == expected


def test_an_unknown_model_is_refused_with_a_suggestion(sizes, statistics):
    with pytest.raises(ConfigError, match=r"no model 'refrence'\. Did you mean 'reference'"):
        build_model(ModelSpec("refrence", sizes, statistics))


def test_settings_and_sizes_out_of_bounds_are_refused(spec):
    with pytest.raises(ConfigError, match=r"Unknown setting 'model\.dept'"):
        build_model(replace(spec, arguments={"dept": 3}))
    arguments = {"fast": {"depth": 10**9}, "reference": {"node": {"rounds": 10**9}}}[spec.name]
    with pytest.raises(ConfigError, match=f"model '{spec.name}': '.*' must be from"):
        build_model(replace(spec, arguments=arguments))
    with pytest.raises(ConfigError, match="codes is refused"):
        build_model(replace(spec, sizes=replace(spec.sizes, category_conditions=(10**9,))))


def test_what_the_constructor_cannot_do_is_said_in_our_words(spec, monkeypatch):
    def fails(*_: object) -> None:
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(CLASSES[spec.name], "__init__", fails)
    with pytest.raises(ConfigError, match=f"'{spec.name}' cannot be built: not enough memory"):
        build_model(spec)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop("sizes"),
        lambda data: data.pop("name"),
        lambda data: data.pop("arguments"),
        lambda data: data["sizes"].pop("edge_types"),
        lambda data: data["sizes"].update(attributes=[4, -2]),
        lambda data: data["sizes"].update(attributes=[4]),
        lambda data: data["sizes"].update(edge_types=3),
        lambda data: data["sizes"].update(category_conditions="many"),
        lambda data: data.update(sizes=None),
        lambda data: data.update(statistics=[]),
        lambda data: data.update(arguments=[1, 2]),
        lambda data: data.update(arguments={"width": {1: 2}}),
        lambda data: data.update(arguments={"encoder": {"block": object()}}),
        lambda data: data["sizes"].update(numeric_conditions=float("inf")),
    ],
)
def test_a_damaged_description_is_refused_in_one_sentence(damage, sizes, statistics):
    data = ModelSpec("fast", sizes, statistics, {"width": 32}).to_dict()
    damage(data)
    with pytest.raises(ConfigError, match=r"The model's description cannot be read: .*\."):
        ModelSpec.from_dict(data)


@pytest.mark.parametrize("data", [None, 3, "fast", [], {}])
def test_what_is_no_description_is_refused(data):
    with pytest.raises(ConfigError, match="description cannot be read"):
        ModelSpec.from_dict(data)
