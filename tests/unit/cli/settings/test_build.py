from dataclasses import replace

import pytest

from layerdag.cli.settings import build_spec, compose
from layerdag.datasets.sources import load_latent_preferential


@pytest.mark.parametrize(
    ("kind", "override", "expected"),
    [
        ("flow", "model.predict_out_degree=null", True),
        ("trace", "model.predict_out_degree=null", False),
        ("trace", "model.predict_out_degree=true", True),
        ("flow", "model.predict_out_degree=false", False),
    ],
)
def test_out_degree_prediction_follows_the_kind_of_the_graphs_unless_set(
    kind: str, override: str, expected: bool
) -> None:
    data = load_latent_preferential(num_train=3, num_val=1, num_test=1)
    data = replace(data, schema=replace(data.schema, kind=kind))
    spec = build_spec(compose("train", [override]).model, data)
    assert spec.arguments["predict_out_degree"] is expected
