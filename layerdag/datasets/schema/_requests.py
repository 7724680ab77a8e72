"""What to ask a generator for: given conditions completed with plausible ones.

A condition that the user leaves open is drawn from a training graph that is like the request, so
that a request for "gpt" gets a strategy, a size and a label that GPT jobs have.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.datasets.schema._schema import ROW_STEP, GraphSchema
from layerdag.graph import Condition

# Among the rows that fit the categories, this many nearest in the given numbers are drawn from.
NEAREST = 8


def complete_conditions(
    schema: GraphSchema, given: Mapping[str, Condition], seeds: Sequence[int]
) -> list[dict[str, Condition]]:
    """Return full conditions for each seed; each depends on its own seed alone.

    Args:
        schema: Of the checkpoint.
        given: Conditions that the user asked for, in their own units.
        seeds: One for each graph.

    Raises:
        VocabularyError: If a given condition or category is unknown.
    """
    numeric_1C, category_1M = schema.encode_conditions([given])
    rows_RX = np.array(schema.condition_rows, dtype=np.float64)
    if not rows_RX.size:
        return [dict(given) for _ in seeds]
    num_categories = len(schema.category_conditions)
    categories_RM, numbers_RC = rows_RX[:, :num_categories], rows_RX[:, num_categories:]
    wanted_M, target_C = category_1M[0].numpy(), numeric_1C[0].numpy()
    fits_R = ((categories_RM == wanted_M) | (wanted_M < 0)).sum(axis=1)
    pool = np.flatnonzero(fits_R == fits_R.max())
    asked_C = ~np.isnan(target_C)
    if asked_C.any():
        gap_P = np.abs(numbers_RC[pool][:, asked_C] - target_C[asked_C]).sum(axis=1)
        pool = pool[np.argsort(gap_P, kind="stable")[:NEAREST]]
    completed = []
    for seed in seeds:
        rng = numpy_generator(seed, "conditions")
        row = int(pool[rng.integers(len(pool))])
        blur_C = rng.uniform(-ROW_STEP / 2, ROW_STEP / 2, numbers_RC.shape[1])
        drawn = _decoded(schema, categories_RM[row], numbers_RC[row] + blur_C)
        completed.append({**drawn, **given})
    return completed


def outside_training(schema: GraphSchema, given: Mapping[str, Condition]) -> list[str]:
    """Return one sentence for each number asked for that lies outside the training range.

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
                f"'{condition.name}' is {float(value):g}, but the model learned from graphs with "
                f"{low:g} to {high:g}; what it samples beyond is a guess."
            )
    return found


def _decoded(
    schema: GraphSchema, codes_M: np.ndarray, numbers_C: np.ndarray
) -> dict[str, Condition]:
    """Return the conditions of one row in their own units; unknown ones are left out."""
    found: dict[str, Condition] = {}
    for condition, code in zip(schema.category_conditions, codes_M.tolist(), strict=True):
        if code >= 0:
            found[condition.name] = condition.values[int(code)]
    for number, scaled in zip(schema.numeric_conditions, numbers_C.tolist(), strict=True):
        if not np.isnan(scaled):
            low, high = number.draw_range()
            found[number.name] = min(max(number.decode(scaled), low), high)
    return found
