from pathlib import Path

import pytest
from raw_graphs import chain

from layerdag.datasets import encoded, translated
from layerdag.datasets.files import write_graphml
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import VocabularyError

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
