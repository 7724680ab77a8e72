"""Does the schema of a checkpoint tell which graphs were trained on?

The attacker needs neither weights nor samples: the schema says what training graphs were like, so
that open conditions of a request can be drawn. Before format 3 it held the rounded conditions of
every training graph, and looking a graph up was enough.
"""

from collections.abc import Sequence

import numpy as np

from layerdag.datasets.schema import GraphSchema
from layerdag.evaluation.privacy._membership import (
    Attack,
    attack_by_scores,
    with_members_held_out,
)
from layerdag.graph import DAG


def schema_attacks(
    schema: GraphSchema, train: Sequence[DAG], held_out: Sequence[DAG], seed: int = 0
) -> tuple[Attack, ...]:
    """Return the attacks of somebody who has the schema alone; none if it has no table.

    "schema_lookup" asks whether the table has an entry for the conditions of a graph,
    "schema_density" how much weight it gives to them. The second also says by how much training and
    held-out graphs differ as they are.

    Args:
        schema: Of the checkpoint.
        train: Training graphs, the members.
        held_out: Real graphs that were not trained on.
        seed: Of the bootstrap.
    """
    table = schema.condition_table
    if not table.cells or not train or not held_out:
        return ()
    members, others = _encoded(schema, train), _encoded(schema, held_out)
    found = (table.holds(*members).astype(np.float64), table.holds(*others).astype(np.float64))
    weight = (table.log_density(*members), table.log_density(*others))
    said = (
        ("schema_lookup", "an entry of the schema for its conditions", found),
        ("schema_density", "weight of its conditions, by the schema", weight),
    )
    return tuple(
        with_members_held_out(attack_by_scores(name, what, [scores], seed), scores[1], seed)
        for name, what, scores in said
    )


def _encoded(schema: GraphSchema, dags: Sequence[DAG]) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and standardized numbers of the conditions that the schema knows."""
    known = set(schema.condition_names)
    rows = [{k: v for k, v in dag.conditions.items() if k in known} for dag in dags]
    numeric_BC, category_BM = schema.encode_conditions(rows)
    return category_BM.numpy(), numeric_BC.double().numpy()
