from dataclasses import replace

import pytest
import torch
from warm_starts import batch_of, data_of, jobs, shuffled, spec_of, trained

from layerdag.datasets.schema import GraphSchema
from layerdag.errors import ConfigError
from layerdag.graph import GraphStatistics
from layerdag.models import ModelSpec, build_model
from layerdag.models.warm_start import Trained, axes_of, carry_over, spec_from

MODELS = [
    ("fast", {}),
    ("fast", {"predict_out_degree": True}),
    ("fast", {"conditioning": {"remaining_sizes": "encoded"}}),
    ("reference", {}),
]


@pytest.fixture(scope="module")
def schema() -> GraphSchema:
    return data_of(jobs()).schema


def losses(spec: ModelSpec, weights: dict[str, torch.Tensor], batch) -> dict[str, float]:
    model = build_model(spec, seed=9).eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        terms = model.losses(batch, torch.Generator().manual_seed(0))
    return {name: float(term.mean()) for name, term in terms.items()}


@pytest.mark.parametrize(("name", "arguments"), MODELS)
def test_the_same_schema_gives_the_same_weights_to_the_bit(schema, name, arguments) -> None:
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
def test_words_in_another_order_give_the_same_loss(schema, name, arguments) -> None:
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
def test_every_weight_whose_shape_depends_on_the_data_is_described(schema, name, arguments) -> None:
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


def test_a_model_that_counts_sizes_down_starts_as_one_that_does_not(schema) -> None:
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


def test_a_new_word_starts_as_the_mean_of_its_kind_and_others_stay(schema) -> None:
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


def test_what_the_old_model_does_not_know_stays_fresh(schema) -> None:
    old = trained(schema, jobs())
    renamed = replace(
        schema,
        attributes=(*schema.attributes[:-1], replace(schema.attributes[-1], name="energy")),
    )
    carried = carry_over(old, old.spec, renamed, seed=3)
    fresh = build_model(old.spec, seed=3).state_dict()
    last = len(schema.attributes) - 2
    key = f"heads.other_readouts.{last}.project.weight"
    assert torch.equal(carried.weights[key], fresh[key])
    assert carried.report[-1] == "fresh: energy"


def test_what_the_new_data_lacks_counts_as_unknown(schema) -> None:
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


def test_a_condition_on_another_scale_says_nearly_the_same(schema) -> None:
    old = trained(schema, jobs())
    label = schema.numeric_conditions[0]
    other = replace(
        schema,
        numeric_conditions=(replace(label, mean=label.mean + 0.3, std=label.std * 1.2),),
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


def test_settings_come_from_the_old_model_and_dropout_may_differ(schema) -> None:
    old, data = trained(schema, jobs()), data_of(jobs())
    spec = spec_from(old, data, given={"encoder": {"dropout": 0.3}, "width": 32})
    assert (spec.name, spec.arguments["width"], spec.arguments["depth"]) == ("fast", 32, 1)
    assert spec.arguments["encoder"]["dropout"] == 0.3
    assert spec.arguments["predict_out_degree"] is False


def test_what_contradicts_the_old_model_is_refused(schema) -> None:
    old, data = trained(schema, jobs()), data_of(jobs())
    with pytest.raises(ConfigError, match=r"model.width=64 contradicts .* with width=32; leave"):
        spec_from(old, data, given={"width": 64})
    with pytest.raises(ConfigError, match=r"'reference' cannot start from .* model 'fast'"):
        spec_from(old, data, "reference")
    with pytest.raises(
        ConfigError, match=r"Unknown setting 'model\.widht'\. Did you mean 'model\.width'"
    ):
        build_model(spec_from(old, data, given={"widht": 64}))


def test_a_trained_model_is_not_changed(schema) -> None:
    old = trained(schema, jobs())
    before = {key: tensor.clone() for key, tensor in old.model.state_dict().items()}
    other = shuffled(schema)
    carry_over(Trained(old.model, old.spec, schema), spec_of(other, jobs()), other)
    assert all(torch.equal(before[k], t) for k, t in old.model.state_dict().items())
