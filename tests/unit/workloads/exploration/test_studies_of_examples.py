"""The studies in ``examples/studies`` can be read, and say what their page says."""

from collections import Counter
from pathlib import Path

import pytest

from layerdag.workloads.exploration import read_study
from layerdag.workloads.exploration._points import points_of

STUDIES = sorted((Path(__file__).resolve().parents[4] / "examples" / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_can_be_read_and_has_plans_on_every_cluster(path: Path) -> None:
    study = read_study(path)
    tried = Counter(point.cluster for point in points_of(study).possible)
    assert set(tried) == set(study.clusters)


def test_a_trillion_parameters_on_1024_ranks() -> None:
    (path,) = [path for path in STUDIES if path.stem == "transformer-1t"]
    study = read_study(path)
    (shape,) = study.models
    assert shape.parameters == pytest.approx(1.008e12, rel=2e-3)
    assert {cluster.ranks for cluster in study.clusters.values()} == {1024}
    local = study.clusters["h100-pods-of-8"]
    for name in ("h100-pods-of-8-expanded", "h100-pods-of-8-expanded-fast"):
        expanded = study.clusters[name]
        assert expanded.capacity == 500 * 2**30
        assert expanded.network == local.network
