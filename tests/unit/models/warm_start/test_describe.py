"""Which weights have rows for the data's codes, and what they were called in another model."""

from dataclasses import replace
from typing import Any

import pytest
from warm_starts import data_of, jobs, spec_of, trained

from layerdag.datasets.schema import GraphSchema
from layerdag.models import build_model
from layerdag.models.warm_start import axes_of
from layerdag.models.warm_start._axes import CountBins, Degrees, EdgeTypes
from layerdag.models.warm_start._describe import counterpart


@pytest.fixture(scope="module")
def schema() -> GraphSchema:
    return data_of(jobs()).schema


def axes(schema: GraphSchema, name: str, **arguments: Any) -> dict[str, Any]:
    old = trained(schema, jobs(), name, **arguments)
    return axes_of(old.model, old.spec)


@pytest.mark.parametrize("name", ["fast", "reference"])
def test_axes_are_of_parameters_and_have_a_row_for_each_place(name: str, schema: GraphSchema):
    old = trained(schema, jobs(), name)
    shapes = {key: weight.shape for key, weight in old.model.state_dict().items()}
    for key, axis in axes_of(old.model, old.spec).items():
        rows = sum(segment.size(schema) for segment in axis.segments)
        assert rows == shapes[key][axis.dim], key
        assert not axis.positions or sorted(axis.positions) == list(range(rows)), key


@pytest.mark.parametrize("name", ["fast", "reference"])
def test_a_weight_without_an_axis_does_not_depend_on_the_data(name: str, schema: GraphSchema):
    """Sizes of another data set change the shapes of the weights with an axis alone."""
    old = trained(schema, jobs(), name)
    sizes = replace(
        old.spec.sizes,
        attributes=tuple(n + 1 for n in old.spec.sizes.attributes),
        edge_types=old.spec.sizes.edge_types + 1,
        category_conditions=tuple(n + 1 for n in old.spec.sizes.category_conditions),
    )
    statistics = replace(
        old.spec.statistics,
        attributes=tuple((*counts, 1) for counts in old.spec.statistics.attributes),
        edge_types=(*old.spec.statistics.edge_types, 1),
        in_degrees=(*old.spec.statistics.in_degrees, ()),
        out_degrees=(*old.spec.statistics.out_degrees, ()),
    )
    other = build_model(replace(old.spec, sizes=sizes, statistics=statistics)).state_dict()
    changed = {key for key, w in old.model.state_dict().items() if other[key].shape != w.shape}
    described = set(axes_of(old.model, old.spec))
    assert changed <= described
    assert len(changed) > len(described) / 3


def test_out_degrees_have_rows_only_where_they_are_predicted(schema: GraphSchema):
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


def test_noisy_edges_are_told_from_known_ones(schema: GraphSchema):
    found = axes(schema, "reference")
    roles = {key: [s.role for s in axis.segments] for key, axis in found.items() if "kinds" in key}
    for key, named in roles.items():
        assert named == (["known", "noisy"] if key.startswith("edge.") else [""]), key
    assert any(key.startswith("edge.") for key in roles)
    assert isinstance(found["edge.states.weight"].segments[1], EdgeTypes)


def test_the_reference_model_has_a_row_for_each_in_degree(schema: GraphSchema):
    old = trained(schema, jobs(), "reference")
    degrees = axes_of(old.model, old.spec)["node.noisy.table"].segments[-1]
    assert isinstance(degrees, Degrees)
    assert degrees.values == tuple(old.model.degrees.value_K.tolist())


def test_without_conditions_nothing_is_described_of_them(schema: GraphSchema):
    bare = replace(schema, numeric_conditions=(), category_conditions=())
    for name in ("fast", "reference"):
        spec = spec_of(bare, jobs(), name)
        found = axes_of(build_model(spec), spec)
        assert not any("conditions" in key or "posterior" in key for key in found)


def test_numbered_parameters_follow_their_attribute(schema: GraphSchema):
    """The new data lists the attributes after the kind in the opposite order."""
    kind, *others = schema.attributes
    here = replace(schema, attributes=(kind, *reversed(others)))
    last = len(others) - 1
    for part in ("other_readouts.{}.project.weight", "other_embeddings.{}.weight"):
        for number in range(len(others)):
            name = "heads." + part
            found = counterpart(name.format(number), here, schema)
            assert found == name.format(last - number)


def test_numbered_parameters_follow_their_condition(schema: GraphSchema):
    here = replace(schema, category_conditions=tuple(reversed(schema.category_conditions)))
    name = "edge.encoder.conditions.categories.{}.weight"
    last = len(schema.category_conditions) - 1
    assert counterpart(name.format(0), here, schema) == name.format(last)
    there = replace(schema, category_conditions=schema.category_conditions[1:])
    assert counterpart(name.format(0), schema, there) is None
    assert counterpart(name.format(1), schema, there) == name.format(0)


def test_an_attribute_that_the_old_model_lacks_has_no_counterpart(schema: GraphSchema):
    there = replace(schema, attributes=schema.attributes[:-1])
    last = len(schema.attributes) - 2
    assert counterpart(f"heads.other_readouts.{last}.project.bias", schema, there) is None


def test_all_other_parameters_keep_their_names(schema: GraphSchema):
    model = trained(schema, jobs()).model
    for name in model.state_dict():
        assert counterpart(name, schema, schema) == name
    assert counterpart("encoder.0.mix.weight", schema, schema) == "encoder.0.mix.weight"
