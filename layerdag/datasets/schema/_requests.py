"""What to ask a generator for: given conditions completed with plausible ones.

Conditions that the user leaves open are drawn from what training graphs like the request were like
(``condition_table.py``), so that a request for "gpt" gets a strategy, a size and a label that GPT
jobs have.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.datasets.schema._schema import GraphSchema
from layerdag.graph import Condition


def complete_conditions(
    schema: GraphSchema, given: Mapping[str, Condition], seeds: Sequence[int]
) -> list[dict[str, Condition]]:
    """Return full conditions for each seed; each depends on its own seed alone.

    Conditions that follow from others (``laws.Relation``) do so in what is returned, too.
    Where the schema has no table, because too few graphs were trained on, open ones stay open.

    Args:
        schema: Of the checkpoint.
        given: Requested conditions, in their own units.
        seeds: One for each graph.

    Raises:
        VocabularyError: If a given condition or category is unknown, or given ones contradict each
            other.
    """
    schema.encode_conditions([given])
    words = {condition.name: condition.values for condition in schema.category_conditions}
    given = schema.laws.completed(given, words)
    numeric_1C, category_1M = schema.encode_conditions([given])
    if not schema.condition_table.cells:
        return [dict(given) for _ in seeds]
    draws = schema.condition_table.draws(
        category_1M[0].numpy(),
        numeric_1C[0].double().numpy(),
        (numpy_generator(seed, "conditions") for seed in seeds),
    )
    rows = [{**_decoded(schema, *drawn), **given} for drawn in draws]
    return [schema.laws.settled(row, given, words) for row in rows]


def outside_training(schema: GraphSchema, given: Mapping[str, Condition]) -> list[str]:
    """Return one sentence for each requested number outside the training range.

    Bounds are compared as the schema keeps them, rounded to 3 significant digits.

    Raises:
        VocabularyError: If a given condition or category is unknown, or no number.
    """
    schema.encode_conditions([given])
    found = []
    for condition in schema.numeric_conditions:
        value = given.get(condition.name)
        low, high = condition.draw_range()
        if value is not None and not low <= float(f"{float(value):.3g}") <= high:
            found.append(
                f"'{condition.name}' is {float(value):g}, but most graphs that the model "
                f"learned from have {low:g} to {high:g}; what it samples beyond is a guess."
            )
    return found


def _decoded(schema: GraphSchema, code_M: np.ndarray, number_C: np.ndarray) -> dict[str, Condition]:
    """Return drawn conditions in their own units; unknown ones are left out."""
    found: dict[str, Condition] = {}
    for condition, code in zip(schema.category_conditions, code_M.tolist(), strict=True):
        if code >= 0:
            found[condition.name] = condition.values[code]
    for number, scaled in zip(schema.numeric_conditions, number_C.tolist(), strict=True):
        if not np.isnan(scaled):
            low, high = number.draw_range()
            found[number.name] = min(max(number.decode(scaled), low), high)
    return found
