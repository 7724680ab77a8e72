"""The description of a model takes its sizes and statistics from the data set."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from warm_starts import TINY, batch_of, data_of, jobs, shuffled, spec_of, trained

import layerdag as ld
from layerdag.dag.statistics import GraphStatistics, shared_statistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import CheckpointError, ConfigError
from layerdag.models.base import ModelSpec, build_model
from layerdag.models.config import FastConfig
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import Origin, checkpoint_fingerprint
from layerdag.training.run import OptimizerConfig
from layerdag.training.weight_axes import CountBins, EdgeTypes, InDegreeRows
from layerdag.training.weight_transfer import (
    SourceModel,
    axes_of,
    carry_over,
    predicts_out_degree,
    report,
    source_parameter_name,
    spec_for,
    spec_from,
    warm_start,
)

SETTINGS = ld.TrainSettings(max_steps=1, evaluate_every=1, optimizer=OptimizerConfig(1e-9))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Return the folder of a run on some jobs."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    settings = ld.TrainSettings(max_steps=2, evaluate_every=2)
    ld.train(data_of(jobs()), out=folder, settings=settings, **TINY["fast"])
    return folder


def test_a_run_starts_from_another_ones_weights_and_says_so(run, tmp_path):
    data = data_of(jobs(10, first=4))
    checkpoint = ld.train(data, init=run, out=tmp_path / "second", settings=SETTINGS)
    first = ld.load_checkpoint(run / "best")
    assert checkpoint.spec.arguments["width"] == 32
    for name in ("encoder.0.mix.weight", "heads.pointer.query.weight"):
        found, wanted = checkpoint.model.state_dict()[name], first.model.state_dict()[name]
        assert torch.allclose(found, wanted, atol=1e-6)
    fingerprint = checkpoint_fingerprint(run / "best")
    origin = Origin("first", fingerprint, 2, first.meta.data_fingerprint)
    assert checkpoint.meta.origin == origin
    assert str(run.parent) not in (tmp_path / "second/best/meta.json").read_text()
    assert ld.load_checkpoint(run / "best").meta.origin is None


def test_the_sentence_tells_what_was_mapped(run):
    start = warm_start(run / "last", data_of(jobs()))
    assert str(start).startswith("starts from first (step 2): operators 5 of 5 by name")
    assert len(ld.sample(run / "best", num=1, max_nodes=5, best_of=1)) == 1


def test_the_shipped_checkpoint_has_a_name():
    start = warm_start("pretrained", data_of(jobs()))
    assert start.start.origin.name == "pretrained"
    assert start.spec.arguments["width"] == 128


def test_what_cannot_be_started_from_is_refused(run, tmp_path):
    data = data_of(jobs())
    with pytest.raises(ConfigError, match=r"model.depth=2 contradicts .* depth=1"):
        ld.train(data, init=run, depth=2)
    with pytest.raises(ConfigError, match="'reference' cannot start from"):
        ld.train(data, "reference", init=run)
    with pytest.raises(CheckpointError, match="is not a checkpoint directory"):
        ld.train(data, init=tmp_path / "nothing")


def test_weights_that_are_not_finite_are_refused(run, tmp_path):
    from safetensors.torch import load_file, save_file

    bad = tmp_path / "bad"
    bad.mkdir()
    for file in (run / "best").iterdir():
        (bad / file.name).write_bytes(file.read_bytes())
    weights = load_file(bad / "weights.safetensors")
    weights["heads.context.bias"][0] = float("nan")
    save_file(weights, bad / "weights.safetensors")
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        warm_start(bad, data_of(jobs()))


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    return data_of(jobs())


def test_sizes_are_those_of_the_schema(data):
    assert spec_for(data, "fast", {}).sizes == data.schema.sizes()


def test_statistics_count_the_training_graphs_alone(data):
    statistics, sizes = spec_for(data, "reference", {}).statistics, data.schema.sizes()
    every = [dag for part in data.graphs.values() for dag in part]
    assert statistics == shared_statistics(data.graphs["train"], sizes)
    assert statistics != shared_statistics(every, sizes)


@pytest.mark.parametrize(("given", "settled"), [(None, False), (True, True), (False, False)])
def test_out_degrees_are_predicted_for_jobs_only_if_asked(data, given, settled):
    assert not predicts_out_degree(data)
    spec = spec_for(data, "fast", {"predict_out_degree": given})
    assert spec.arguments["predict_out_degree"] is settled
    assert (build_model(spec).heads.out_degree is not None) is settled


@pytest.mark.parametrize(
    ("asks", "given", "settled"),
    [
        (("num_nodes", "num_layers"), None, "encoded"),
        (("num_nodes",), None, "none"),
        ((), None, "none"),
        (("num_nodes", "num_layers"), "none", "none"),
    ],
)
def test_the_sizes_that_jobs_are_asked_for_are_counted_down(asks, given, settled):
    graphs = [replace(job, conditions=dict.fromkeys(asks, 9.0)) for job in jobs()]
    spec = spec_for(data_of(graphs), "fast", {"conditioning": {"remaining_sizes": given}})
    assert spec.arguments["conditioning"]["remaining_sizes"] == settled
    assert (build_model(spec).remaining is not None) is (settled == "encoded")


def test_settings_are_a_tree_or_plain_data_and_all_written_down(data):
    plain = spec_for(data, "fast", {"width": 32, "depth": 1})
    assert spec_for(data, "fast", FastConfig(width=32, depth=1)) == plain
    spec = spec_for(data, "reference", TINY["reference"])
    assert spec.arguments["node"]["blocks"] == 1
    assert spec.arguments["budget"] == 300_000
    assert "predict_out_degree" not in spec.arguments
    with pytest.raises(ConfigError, match="no model 'quick'"):
        spec_for(data, "quick", {})
    with pytest.raises(ConfigError, match=r"Unknown setting 'model\.encoder\.blok'"):
        spec_for(data, "fast", {"encoder": {"blok": 3}})


@pytest.fixture(scope="module")
def schema() -> GraphSchema:
    return data_of(jobs()).schema


def axes(schema: GraphSchema, name: str, **arguments: Any) -> dict[str, Any]:
    old = trained(schema, jobs(), name, **arguments)
    return axes_of(old.model, old.spec)


def test_out_degrees_have_rows_only_where_they_are_predicted(schema):
    plain = axes(schema, "fast", predict_out_degree=False)
    planned = axes(schema, "fast", predict_out_degree=True)
    extra = set(planned) - set(plain)
    last = len(schema.attributes) - 2
    assert extra == {
        "heads.plan_readout.project.weight",
        "heads.plan_readout.project.bias",
        f"heads.other_embeddings.{last}.weight",
    }
    (bins,) = planned["heads.plan_readout.project.bias"].segments
    assert isinstance(bins, CountBins)
    assert bins.key(schema) == ("count", "out-degree")


def test_noisy_edges_are_told_from_known_ones(schema):
    found = axes(schema, "reference")
    roles = {key: [s.role for s in axis.segments] for key, axis in found.items() if "kinds" in key}
    for key, named in roles.items():
        assert named == (["known", "noisy"] if key.startswith("edge.") else [""]), key
    assert any(key.startswith("edge.") for key in roles)
    assert isinstance(found["edge.states.weight"].segments[1], EdgeTypes)


def test_the_reference_model_has_a_row_for_each_in_degree(schema):
    old = trained(schema, jobs(), "reference")
    degrees = axes_of(old.model, old.spec)["node.noisy.table"].segments[-1]
    assert isinstance(degrees, InDegreeRows)
    assert degrees.values == tuple(old.model.degrees.value_K.tolist())


def test_without_conditions_nothing_is_described_of_them(schema):
    bare = replace(schema, numeric_conditions=(), category_conditions=())
    for name in ("fast", "reference"):
        spec = spec_of(bare, jobs(), name)
        found = axes_of(build_model(spec), spec)
        assert not any("conditions" in key or "posterior" in key for key in found)


def test_numbered_parameters_follow_their_attribute(schema):
    """The new data lists the attributes after the kind in the opposite order."""
    kind, *others = schema.attributes
    here = replace(schema, attributes=(kind, *reversed(others)))
    last = len(others) - 1
    for part in ("other_readouts.{}.project.weight", "other_embeddings.{}.weight"):
        for number in range(len(others)):
            name = "heads." + part
            found = source_parameter_name(name.format(number), here, schema)
            assert found == name.format(last - number)


def test_numbered_parameters_follow_their_condition(schema):
    here = replace(schema, category_conditions=tuple(reversed(schema.category_conditions)))
    name = "edge.encoder.conditions.categories.{}.weight"
    last = len(schema.category_conditions) - 1
    assert source_parameter_name(name.format(0), here, schema) == name.format(last)
    there = replace(schema, category_conditions=schema.category_conditions[1:])
    assert source_parameter_name(name.format(0), schema, there) is None
    assert source_parameter_name(name.format(1), schema, there) == name.format(0)


def test_an_attribute_that_the_old_model_lacks_has_no_counterpart(schema):
    there = replace(schema, attributes=schema.attributes[:-1])
    last = len(schema.attributes) - 2
    assert source_parameter_name(f"heads.other_readouts.{last}.project.bias", schema, there) is None


def phrases(here: GraphSchema, there: GraphSchema) -> dict[str, str]:
    return {phrase.split(" ")[0].rstrip(":"): phrase for phrase in report(here, there)}


def names(schema: GraphSchema, kind: type) -> list[str]:
    return [a.name for a in schema.attributes if isinstance(a, kind)]


def test_on_the_same_data_everything_is_known(schema):
    found = phrases(schema, schema)
    words, bins = names(schema, CategoryAttribute), names(schema, NumericAttribute)
    count = len(schema.attributes[0].values)
    assert found["operators"] == f"operators {count} of {count} by name"
    types = len(schema.edge_types)
    assert found["edge"] == f"edge types {types} of {types} by name"
    conditions = [c.name for c in schema.category_conditions]
    assert found["all"] == f"all words by name: {', '.join([*words[1:], *conditions])}"
    numbers = [c.name for c in schema.numeric_conditions]
    assert found["by"] == f"by value: {', '.join([*bins, *numbers])}"
    assert "fresh" not in found


def test_the_order_of_words_does_not_matter(schema):
    assert report(shuffled(schema), schema) == report(schema, schema)


def test_new_words_are_counted(schema):
    words = schema.attributes[0]
    assert isinstance(words, CategoryAttribute)
    more = replace(words, values=(*words.values, "aten::new", "aten::newer"))
    here = replace(schema, attributes=(more, *schema.attributes[1:]))
    count = len(words.values)
    assert phrases(here, schema)["operators"] == (
        f"operators {count} of {count + 2} by name, 2 from their kind"
    )


def test_a_new_edge_type_and_a_new_word_of_a_condition_are_told(schema):
    family = schema.category_conditions[0]
    here = replace(
        schema,
        edge_types=(*schema.edge_types, "control2"),
        category_conditions=(
            replace(family, values=(*family.values, "unheard")),
            *schema.category_conditions[1:],
        ),
    )
    found = phrases(here, schema)
    types, count = len(schema.edge_types), len(family.values)
    assert found["edge"] == f"edge types {types} of {types + 1} by name, 1 fresh"
    assert found[family.name] == (
        f"{family.name} {count} of {count + 1} by name, 1 from their kind"
    )
    assert family.name not in found.get("all", "")


def test_what_the_old_data_lacks_is_fresh(schema):
    attribute = schema.attributes[-1]
    there = replace(
        schema,
        attributes=schema.attributes[:-1],
        numeric_conditions=(),
        category_conditions=schema.category_conditions[1:],
    )
    fresh = [
        attribute.name,
        *(c.name for c in schema.numeric_conditions),
        schema.category_conditions[0].name,
    ]
    assert report(schema, there)[-1] == f"fresh: {', '.join(fresh)}"


def test_what_the_new_data_lacks_is_not_mentioned(schema):
    here = replace(schema, numeric_conditions=(), category_conditions=())
    told = " ".join(report(here, schema))
    gone = [c.name for c in (*schema.numeric_conditions, *schema.category_conditions)]
    assert not any(name in told.split(": ")[-1] for name in gone)


MODELS = [
    ("fast", {}),
    ("fast", {"predict_out_degree": True}),
    ("fast", {"conditioning": {"remaining_sizes": "encoded"}}),
    ("reference", {}),
]


def losses(spec: ModelSpec, weights: dict[str, torch.Tensor], batch) -> dict[str, float]:
    model = build_model(spec, seed=9).eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        terms = model.losses(batch, torch.Generator().manual_seed(0))
    return {name: float(term.mean()) for name, term in terms.items()}


@pytest.mark.parametrize(("name", "arguments"), MODELS)
def test_the_same_schema_gives_the_same_weights_to_the_bit(schema, name, arguments):
    old = trained(schema, jobs(), name, **arguments)
    carried = carry_over(old, old.spec, schema, seed=3)
    weights = old.model.state_dict()
    assert carried.weights.keys() == weights.keys()
    for key, tensor in weights.items():
        assert torch.equal(carried.weights[key], tensor), key
        assert carried.weights[key] is not tensor, key
    batch = batch_of(schema, jobs())
    assert losses(old.spec, carried.weights, batch) == losses(old.spec, weights, batch)


@pytest.mark.parametrize(("name", "arguments"), MODELS)
def test_words_in_another_order_give_the_same_loss(schema, name, arguments):
    old, other = trained(schema, jobs(), name, **arguments), shuffled(schema)
    spec = spec_of(other, jobs(), name, **arguments)
    carried = carry_over(old, spec, other, seed=3)
    found = losses(spec, carried.weights, batch_of(other, jobs()))
    wanted = losses(old.spec, old.model.state_dict(), batch_of(schema, jobs()))
    # The denoising losses of "reference" draw noise by code, which is another one then.
    exact = ("layer_size",) if name == "reference" else tuple(wanted)
    for key in exact:
        assert found[key] == pytest.approx(wanted[key], rel=1e-4), key
    plain = losses(spec, build_model(spec, seed=9).state_dict(), batch_of(other, jobs()))
    assert plain["layer_size"] != pytest.approx(wanted["layer_size"], rel=1e-2)


@pytest.mark.parametrize(("name", "arguments"), MODELS)
def test_every_weight_whose_shape_depends_on_the_data_is_described(schema, name, arguments):
    graphs = [_with_more_words(graph) for graph in jobs(4, first=20)]
    other = GraphSchema.fit("trace", graphs, num_bins=5)
    other = replace(other, edge_types=(*other.edge_types, "third"))
    old = trained(schema, jobs(), name, **arguments)
    spec = spec_of(other, graphs, name, **arguments)
    spec = replace(spec, statistics=_with_larger_counts(spec.statistics))
    new = build_model(spec)
    axes = axes_of(new, spec)
    shapes = {key: tensor.shape for key, tensor in old.model.state_dict().items()}
    for key, tensor in new.state_dict().items():
        if key in axes:
            rows = sum(segment.size(other) for segment in axes[key].segments)
            assert rows == tensor.shape[axes[key].dim], key
        elif key in shapes:
            assert tensor.shape == shapes[key], key
    assert set(axes) <= set(new.state_dict())


def test_a_model_that_counts_sizes_down_starts_as_one_that_does_not(schema):
    old = trained(schema, jobs())
    spec = spec_of(schema, jobs(), conditioning={"remaining_sizes": "encoded"})
    carried = carry_over(old, spec, schema, seed=3)
    batch = batch_of(schema, jobs())
    assert losses(spec, carried.weights, batch) == losses(old.spec, old.model.state_dict(), batch)


def _with_larger_counts(statistics: GraphStatistics) -> GraphStatistics:
    """Return statistics of graphs with wider layers and more parents and children."""
    more = ((90, 5),)
    return replace(
        statistics,
        layer_sizes=statistics.layer_sizes + more,
        in_degrees=tuple(pairs + more for pairs in statistics.in_degrees),
        out_degrees=tuple(pairs + more for pairs in statistics.out_degrees),
    )


def _with_more_words(graph):
    words = [f"aten::new_{i % 3}" if i % 2 else op for i, op in enumerate(graph.categories["op"])]
    conditions = {**graph.conditions, "label": graph.conditions["label"] * 1000.0}
    return replace(graph, categories={**graph.categories, "op": words}, conditions=conditions)


def test_a_new_word_starts_as_the_mean_of_its_kind_and_others_stay(schema):
    old = trained(schema, jobs())
    graphs = [_with_more_words(graph) for graph in jobs()]
    other = GraphSchema.fit("trace", graphs, num_bins=2)
    spec = spec_of(other, graphs)
    carried = carry_over(old, spec, other)
    words, old_words = other.attributes[0].values, schema.attributes[0].values
    compute = [i for i, word in enumerate(old_words) if word.startswith("aten::")]
    for key in ("heads.kind_embedding.weight", "heads.kind_readout.project.bias"):
        new_rows, old_rows = carried.weights[key], old.model.state_dict()[key]
        mean = old_rows[compute].double().mean(0).float()
        assert torch.equal(new_rows[words.index("aten::new_0")], mean)
        assert torch.equal(
            new_rows[words.index("aten::add")], old_rows[old_words.index("aten::add")]
        )
    assert "operators 4 of 7 by name, 3 from their kind" in carried.report


def test_what_the_old_model_does_not_know_stays_fresh(schema):
    old = trained(schema, jobs())
    renamed = replace(
        schema, attributes=(*schema.attributes[:-1], replace(schema.attributes[-1], name="energy"))
    )
    carried = carry_over(old, old.spec, renamed, seed=3)
    fresh = build_model(old.spec, seed=3).state_dict()
    last = len(schema.attributes) - 2
    key = f"heads.other_readouts.{last}.project.weight"
    assert torch.equal(carried.weights[key], fresh[key])
    assert carried.report[-1] == "fresh: energy"


def test_what_the_new_data_lacks_counts_as_unknown(schema):
    """The old model adds a vector for a condition that is not known; it is not lost."""
    old = trained(schema, jobs())
    narrow = schema.conditioned_on(["label", "family"])
    spec = ModelSpec("fast", narrow.sizes(), old.spec.statistics, dict(old.spec.arguments))
    carried = carry_over(old, spec, narrow)
    batch, unknown = batch_of(narrow, jobs()), batch_of(schema, jobs())
    place = [c.name for c in schema.category_conditions].index("world_size")
    unknown.category_BM[:, place] = -1
    found = losses(spec, carried.weights, batch)
    wanted = losses(old.spec, old.model.state_dict(), unknown)
    assert found["node"] == pytest.approx(wanted["node"], rel=1e-4)


def test_a_condition_on_another_scale_says_nearly_the_same(schema):
    old = trained(schema, jobs())
    label = schema.numeric_conditions[0]
    other = replace(
        schema, numeric_conditions=(replace(label, mean=label.mean + 0.3, std=label.std * 1.2),)
    )
    carried = carry_over(old, old.spec, other)
    wanted = losses(old.spec, old.model.state_dict(), batch_of(schema, jobs()))
    found = losses(old.spec, carried.weights, batch_of(other, jobs()))
    ignored = losses(old.spec, old.model.state_dict(), batch_of(other, jobs()))
    assert abs(found["node"] - wanted["node"]) < 0.05 * abs(ignored["node"] - wanted["node"])
    batch = batch_of(other, jobs())
    model = build_model(old.spec).eval()
    model.load_state_dict(carried.weights)
    means = old.model.predict_numeric_conditions(batch_of(schema, jobs()))
    scaled = (means * label.std + label.mean - label.mean - 0.3) / (label.std * 1.2)
    assert torch.allclose(model.predict_numeric_conditions(batch), scaled, atol=1e-4)


def test_settings_come_from_the_old_model_and_dropout_may_differ(schema):
    old, data = trained(schema, jobs()), data_of(jobs())
    spec = spec_from(old, data, given={"encoder": {"dropout": 0.3}, "width": 32})
    assert (spec.name, spec.arguments["width"], spec.arguments["depth"]) == ("fast", 32, 1)
    assert spec.arguments["encoder"]["dropout"] == 0.3
    assert spec.arguments["predict_out_degree"] is False


def test_what_contradicts_the_old_model_is_refused(schema):
    old, data = trained(schema, jobs()), data_of(jobs())
    with pytest.raises(ConfigError, match=r"model.width=64 contradicts .* with width=32; leave"):
        spec_from(old, data, given={"width": 64})
    with pytest.raises(ConfigError, match=r"'reference' cannot start from .* model 'fast'"):
        spec_from(old, data, "reference")
    with pytest.raises(
        ConfigError, match=r"Unknown setting 'model\.widht'\. Did you mean 'model\.width'"
    ):
        build_model(spec_from(old, data, given={"widht": 64}))


def test_a_trained_model_is_not_changed(schema):
    old = trained(schema, jobs())
    before = {key: tensor.clone() for key, tensor in old.model.state_dict().items()}
    other = shuffled(schema)
    carry_over(SourceModel(old.model, old.spec, schema), spec_of(other, jobs()), other)
    assert all(torch.equal(before[k], t) for k, t in old.model.state_dict().items())
