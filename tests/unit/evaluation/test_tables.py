import json
from dataclasses import replace

import numpy as np

from layerdag.evaluation import SimilarityReport, compare
from layerdag.evaluation.metrics import AttributeView
from layerdag.graph import DAG, random_dag


def report(rng: np.random.Generator) -> SimilarityReport:
    def graphs(count: int) -> list[DAG]:
        return [random_dag(rng, [1, 2, 2], [3]) for _ in range(count)]

    return compare(graphs(8), graphs(7), graphs(6), [AttributeView("op")], replicates=3)


def test_a_report_prints_as_a_table_with_one_line_per_metric(rng: np.random.Generator) -> None:
    found = report(rng)
    head, columns, *lines = str(found).splitlines()
    assert head.startswith("6 generated graphs and 8 real training graphs, each against 7 real")
    assert columns.split() == ["metric", "generated", "real", "ratio", "95", "%"]
    assert [line.split()[0] for line in lines] == [row.metric.name for row in found.rows]
    nodes = next(line for line in lines if line.startswith("edges "))
    assert f"{found.row('edges').generated.value:.3g}" in nodes
    assert nodes.endswith("lower is better")


def test_a_report_as_plain_data_is_json(rng: np.random.Generator) -> None:
    found = report(rng)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["generated"] == 6
    assert len(plain["rows"]) == len(found.rows)
    assert plain["rows"][0]["generated"]["metric"]["goal"] == "lower"


def test_numbers_that_json_lacks_become_null(rng: np.random.Generator) -> None:
    found = report(rng)
    first = replace(found.rows[0], ratio=float("nan"))
    plain = replace(found, rows=(first, *found.rows[1:])).to_dict()
    assert plain["rows"][0]["ratio"] is None
    assert plain["rows"][1]["ratio"] == found.rows[1].ratio
