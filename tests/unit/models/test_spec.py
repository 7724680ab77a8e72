"""A model as plain data: it survives a file, and a file cannot ask for anything else."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from layerdag.errors import ConfigError
from layerdag.graph import DAG, GraphSizes, GraphStatistics, random_dag
from layerdag.models import (
    DAGModel,
    ModelSpec,
    build_model,
    build_without_weights,
)
from layerdag.models.autoregressive import FastConfig, FastLayerDAG
from layerdag.models.diffusion import ReferenceConfig, ReferenceLayerDAG

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
def statistics(sizes: GraphSizes, make_dag: Callable[..., DAG]) -> GraphStatistics:
    return GraphStatistics.measure([make_dag(2, 3, 1)], sizes)


@pytest.fixture(params=["fast", "reference"])
def spec(
    request: pytest.FixtureRequest, sizes: GraphSizes, statistics: GraphStatistics
) -> ModelSpec:
    return ModelSpec(request.param, sizes, statistics, TINY[request.param])


def test_a_spec_survives_its_file(spec: ModelSpec):
    assert ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_the_name_chooses_the_class_and_the_arguments_its_settings(spec: ModelSpec):
    model = build_model(spec)
    assert type(model) is CLASSES[spec.name]
    assert model.config == spec.config
    assert isinstance(spec.config, FastConfig if spec.name == "fast" else ReferenceConfig)


def test_the_seed_alone_makes_the_weights(spec: ModelSpec):
    one, same, other = build_model(spec, 1), build_model(spec, 1), build_model(spec, 2)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name]), name
    differ = [
        name for name, p in one.named_parameters() if not torch.equal(p, other.get_parameter(name))
    ]
    assert len(differ) > len(list(one.parameters())) / 2


def test_building_a_model_leaves_the_global_generator_alone(spec: ModelSpec):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    build_model(spec, 99)
    assert torch.equal(torch.rand(3), wanted)


def test_a_model_without_weights_has_the_shapes_of_one_with_them(spec: ModelSpec):
    bare, model = build_without_weights(spec), build_model(spec)
    assert {tensor.device.type for tensor in bare.state_dict().values()} == {"meta"}
    for tensors in (DAGModel.state_dict, lambda m: dict(m.named_parameters())):
        expected = {name: (t.shape, t.dtype) for name, t in tensors(model).items()}
        assert {name: (t.shape, t.dtype) for name, t in tensors(bare).items()} == expected


def test_a_model_without_weights_is_made_without_the_compiler_of_torch(tmp_path: Path):
    sizes = GraphSizes((4, 2), edge_types=2, numeric_conditions=1, category_conditions=(3,))
    dag = random_dag(np.random.default_rng(0), [2, 3, 2], [4, 2], num_edge_types=2)
    spec = ModelSpec("fast", sizes, GraphStatistics.measure([dag], sizes))
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_dict()))
    program = (
        "import json, sys\n"
        "from layerdag.models import ModelSpec, build_without_weights\n"
        "build_without_weights(ModelSpec.from_dict(json.load(open(sys.argv[1]))))\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    words = (sys.executable, "-c", program, tmp_path / "spec.json")
    assert subprocess.run(words).returncode == 0


def test_all_settings_written_out_make_the_same_model(spec: ModelSpec):
    whole = replace(spec, arguments=asdict(spec.config))
    assert whole.config == spec.config
    assert build_model(whole).state_dict().keys() == build_model(spec).state_dict().keys()


def test_an_unknown_model_is_refused_with_a_suggestion(
    sizes: GraphSizes, statistics: GraphStatistics
):
    with pytest.raises(ConfigError, match=r"no model 'refrence'\. Did you mean 'reference'"):
        build_model(ModelSpec("refrence", sizes, statistics))


def test_an_unknown_setting_is_refused_before_anything_is_built(spec: ModelSpec):
    with pytest.raises(ConfigError, match=r"Unknown setting 'model\.dept'"):
        build_model(replace(spec, arguments={"dept": 3}))


def test_a_value_out_of_bounds_is_refused(spec: ModelSpec):
    arguments = {"fast": {"depth": 10**9}, "reference": {"node": {"rounds": 10**9}}}[spec.name]
    with pytest.raises(ConfigError, match=f"model '{spec.name}': '.*' must be from"):
        build_model(replace(spec, arguments=arguments))


def test_sizes_out_of_bounds_are_refused(spec: ModelSpec):
    with pytest.raises(ConfigError, match="codes is refused"):
        build_model(replace(spec, sizes=replace(spec.sizes, category_conditions=(10**9,))))


def test_what_the_constructor_cannot_do_is_said_in_our_words(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
):
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
def test_a_damaged_description_is_refused_in_one_sentence(
    damage: Callable[[dict[str, Any]], None], sizes: GraphSizes, statistics: GraphStatistics
):
    data = ModelSpec("fast", sizes, statistics, {"width": 32}).to_dict()
    damage(data)
    with pytest.raises(ConfigError, match=r"The model's description cannot be read: .*\."):
        ModelSpec.from_dict(data)


@pytest.mark.parametrize("data", [None, 3, "fast", [], {}])
def test_what_is_no_description_is_refused(data: object):
    with pytest.raises(ConfigError, match="description cannot be read"):
        ModelSpec.from_dict(data)
