"""Looking training graphs up in the schema of a checkpoint."""

from dataclasses import replace

import numpy as np
import torch
from raw_graphs import chain

from layerdag.datasets.schema import ConditionTable, GraphSchema
from layerdag.datasets.schema._condition_table import ConditionCell
from layerdag.evaluation.privacy import schema_attacks
from layerdag.graph import DAG


def with_labels(labels: np.ndarray) -> list[DAG]:
    node, none = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64)
    return [DAG.build(node, none, conditions={"label": float(label)}) for label in labels]


def fitted(labels: np.ndarray) -> GraphSchema:
    return GraphSchema.fit("flow", [chain("g", "a", label=float(label)) for label in labels])


def test_a_fitted_table_tells_nothing_of_note(rng: np.random.Generator):
    labels = rng.normal(10.0, 2.0, 600)
    schema = fitted(labels[:300])
    attacks = schema_attacks(schema, with_labels(labels[:300]), with_labels(labels[300:]))
    assert [attack.name for attack in attacks] == ["schema_lookup", "schema_density"]
    assert all(abs(attack.auc - 0.5) < 0.05 for attack in attacks)


def test_a_table_of_single_graphs_is_caught_by_both(rng: np.random.Generator):
    labels = rng.normal(10.0, 2.0, 60)
    schema = fitted(labels[:30])
    scaled, _ = schema.encode_conditions([{"label": float(label)} for label in labels[:30]])
    cells = tuple(ConditionCell((), 1, (float(v),), (1e-4,)) for v in scaled[:, 0].tolist())
    leaking = replace(schema, condition_table=ConditionTable(cells, ((1.0,),)))
    attacks = schema_attacks(leaking, with_labels(labels[:30]), with_labels(labels[30:]))
    assert all(attack.auc > 0.95 and attack.leaks for attack in attacks)


def test_a_schema_without_a_table_cannot_be_attacked(rng: np.random.Generator):
    schema = fitted(np.arange(1.0, 4.0))
    assert schema_attacks(schema, with_labels(np.ones(3)), with_labels(np.ones(3))) == ()


def test_without_graphs_on_both_sides_there_is_no_attack(rng: np.random.Generator):
    labels = rng.normal(10.0, 2.0, 20)
    schema, some = fitted(labels), with_labels(labels)
    assert schema_attacks(schema, [], some) == ()
    assert schema_attacks(schema, some, []) == ()
    assert len(schema_attacks(schema, some, some)) == 2
