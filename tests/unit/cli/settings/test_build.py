from dataclasses import replace

import pytest

from layerdag.cli.settings import build_spec, compose
from layerdag.datasets.sources import load_latent_preferential


@pytest.mark.parametrize(
    ("kind", "override", "expected"),
    [
        ("flow", "model.plans=null", True),
        ("trace", "model.plans=null", False),
        ("trace", "model.plans=true", True),
        ("flow", "model.plans=false", False),
    ],
)
def test_plans_follow_the_kind_of_the_graphs_unless_set(
    kind: str, override: str, expected: bool
) -> None:
    data = load_latent_preferential(num_train=3, num_val=1, num_test=1)
    data = replace(data, schema=replace(data.schema, kind=kind))
    spec = build_spec(compose("train", [override]).model, data)
    assert spec.arguments["plans"] is expected
