"""What a warm start took from where, in words."""

from collections import Counter
from collections.abc import Iterable, Sequence

from layerdag.datasets.schema import CategoryAttribute, GraphSchema
from layerdag.models.warm_start._numbers import numeric_pair
from layerdag.models.warm_start._sources import (
    BY_NAME,
    attribute_source,
    by_same_name,
    category_source,
)

# What the words of an attribute are called.
_PLURALS = {"op": "operators"}


def report(here: GraphSchema, there: GraphSchema) -> tuple[str, ...]:
    """Return a phrase for each group of words, bins or conditions of the new schema.

    Args:
        here: The new schema.
        there: The old schema.
    """
    phrases, fresh, exact, bins = [], [], [], []
    for column, attribute in enumerate(here.attributes):
        source = attribute_source(column, here, there)
        if source is None:
            fresh.append(attribute.name)
        elif not isinstance(attribute, CategoryAttribute):
            bins.append(attribute.name)
        elif set(source.how) == {BY_NAME} and column:
            exact.append(attribute.name)
        else:
            phrases.append(_counted(_PLURALS.get(attribute.name, attribute.name), source.how))
    edges = by_same_name(here.edge_types, there.edge_types).how
    numbers = [c.name for c in here.numeric_conditions]
    known = [n for i, n in enumerate(numbers) if numeric_pair(i, here, there)]
    fresh += [name for name in numbers if name not in known]
    for condition in here.category_conditions:
        source = category_source(condition, there)
        if source is None:
            fresh.append(condition.name)
        elif set(source.how) == {BY_NAME}:
            exact.append(condition.name)
        else:
            phrases.append(_counted(condition.name, source.how))
    phrases.append(_counted("edge types", edges))
    phrases += _listed("all words by name: ", exact)
    phrases += _listed("by value: ", [*bins, *known])
    return (*phrases, *_listed("fresh: ", fresh))


def _counted(what: str, how: Sequence[str]) -> str:
    """Return "operators 41 of 44 by name, 3 from their kind"."""
    counts = Counter(how)
    named = counts.pop(BY_NAME, 0)
    rest = [f", {count} {way}" for way, count in counts.items()]
    return f"{what} {named} of {len(how)} by name{''.join(rest)}"


def _listed(title: str, names: Iterable[str]) -> list[str]:
    """Return the names as one phrase, nothing for no name."""
    joined = ", ".join(names)
    return [title + joined] if joined else []
