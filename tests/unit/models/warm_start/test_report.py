"""The report of a warm start says of every group what was taken from where."""

from dataclasses import replace

import pytest
from warm_starts import data_of, jobs, shuffled

from layerdag.datasets.schema import CategoryAttribute, GraphSchema, NumericAttribute
from layerdag.models.warm_start._report import report


@pytest.fixture(scope="module")
def schema() -> GraphSchema:
    return data_of(jobs()).schema


def phrases(here: GraphSchema, there: GraphSchema) -> dict[str, str]:
    """Return the phrases by their first word."""
    return {phrase.split(" ")[0].rstrip(":"): phrase for phrase in report(here, there)}


def names(schema: GraphSchema, kind: type) -> list[str]:
    return [a.name for a in schema.attributes if isinstance(a, kind)]


def test_on_the_same_data_everything_is_known(schema: GraphSchema):
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


def test_the_order_of_words_does_not_matter(schema: GraphSchema):
    assert report(shuffled(schema), schema) == report(schema, schema)


def test_new_words_are_counted(schema: GraphSchema):
    words = schema.attributes[0]
    assert isinstance(words, CategoryAttribute)
    more = replace(words, values=(*words.values, "aten::new", "aten::newer"))
    here = replace(schema, attributes=(more, *schema.attributes[1:]))
    count = len(words.values)
    assert phrases(here, schema)["operators"] == (
        f"operators {count} of {count + 2} by name, 2 from their kind"
    )


def test_a_new_edge_type_and_a_new_word_of_a_condition_are_told(schema: GraphSchema):
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


def test_what_the_old_data_lacks_is_fresh(schema: GraphSchema):
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


def test_what_the_new_data_lacks_is_not_mentioned(schema: GraphSchema):
    here = replace(schema, numeric_conditions=(), category_conditions=())
    told = " ".join(report(here, schema))
    gone = [c.name for c in (*schema.numeric_conditions, *schema.category_conditions)]
    assert not any(name in told.split(": ")[-1] for name in gone)
