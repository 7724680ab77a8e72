from pathlib import Path

import pytest
from raw_graphs import chain
from small_workloads import collective, compute, job

from layerdag.codec import job_graph, rank_classes
from layerdag.datasets import encoded, translated
from layerdag.datasets.files import write_graphml
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import VocabularyError
from layerdag.sampling import GeneratedGraph

ABC = GraphSchema.fit("flow", [chain("abc", "abc")])
CBA = GraphSchema.fit("flow", [chain("cb", "cb")])


def test_graphs_of_every_form_get_the_same_codes(tmp_path: Path) -> None:
    graph = chain("g", "bcb")
    write_graphml(tmp_path / "g.graphml", graph)
    wanted = ABC.encode(graph).x_NA.tolist()
    dags = encoded([graph, ABC.encode(graph), tmp_path / "g.graphml"], ABC)
    assert [dag.x_NA.tolist() for dag in dags] == [wanted] * 3


def test_codes_of_another_schema_are_translated_by_their_words() -> None:
    dag = CBA.encode(chain("g", "bcb"))
    assert dag.x_NA.tolist() != ABC.encode(chain("g", "bcb")).x_NA.tolist()
    (there,) = translated([dag], CBA, ABC)
    assert ABC.decode(there).categories["kind"] == ["b", "c", "b"]
    assert translated([dag], CBA, CBA) == [dag]
    with pytest.raises(VocabularyError, match="'a'"):
        translated([ABC.encode(chain("g", "a"))], ABC, CBA)


def test_jobs_and_sampled_graphs_are_encoded_too(tmp_path: Path) -> None:
    workload = job((compute(1), collective(2, 1)), (compute(1), collective(2, 1)))
    graph = job_graph("job", rank_classes(workload), workload.groups, {})
    schema = GraphSchema.fit("trace", [graph])
    [dag] = encoded([workload], schema)
    assert dag.x_NA.tolist() == schema.encode(graph).x_NA.tolist()
    own = ABC.encode(chain("g", "bcb"))
    same = GeneratedGraph("s", 0, own, False, ABC)
    assert encoded([same], ABC)[0] is own
    # Of another schema: by its words.
    [other] = encoded([GeneratedGraph("s", 0, CBA.encode(chain("g", "bcb")), False, CBA)], ABC)
    assert other.x_NA.tolist() == own.x_NA.tolist()
