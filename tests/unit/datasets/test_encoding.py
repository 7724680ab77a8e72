from dataclasses import replace
from pathlib import Path

import pytest
from raw_graphs import chain
from small_workloads import collective, compute, job

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import encoded, load_with_schema, translated
from layerdag.datasets.settings import CorpusConfig, FolderConfig, LatentPreferentialConfig
from layerdag.errors import ConfigError, VocabularyError
from layerdag.graph.formats.graphml import write_graphml
from layerdag.sampling.generated import GeneratedGraph
from layerdag.schema.schema import GraphSchema

FLOW = """digraph {{
  a [kind=load]; b [kind={kind}, cost={cost}]; a -> b;
}}"""


@pytest.fixture(scope="module")
def schema(tmp_path_factory) -> GraphSchema:
    """Return the schema of public flow graphs."""
    folder = tmp_path_factory.mktemp("public")
    _write(folder, {"a": ("add", 1.0), "b": ("mul", 2.0), "c": ("add", 3.0)})
    from layerdag.datasets.loading import load_dataset

    return load_dataset(folder).schema


def _write(folder: Path, graphs: dict[str, tuple[str, float]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, (kind, cost) in graphs.items():
        (folder / f"{name}.dot").write_text(FLOW.format(kind=kind, cost=cost))
    return folder


def _codes(data: GraphDataset, name: str) -> list[list[int]]:
    return data.graphs["train"][data.names["train"].index(name)].x_NA.tolist()


def test_what_becomes_of_a_graph_does_not_depend_on_the_others(schema, tmp_path):
    few = _write(tmp_path / "few", {"mine": ("add", 2.5)})
    many = _write(tmp_path / "many", {"mine": ("add", 2.5), "x": ("mul", 99.0), "y": ("add", 0.1)})
    alone, among = load_with_schema(few, schema), load_with_schema(many, schema)
    assert _codes(alone, "mine") == _codes(among, "mine")
    assert alone.schema == among.schema == schema
    assert among.renamed == {}


def test_all_graphs_of_a_folder_are_for_training(schema, tmp_path):
    graphs = {f"g{i}": ("add", float(i)) for i in range(12)}
    data = load_with_schema(_write(tmp_path / "all", graphs), schema)
    assert {part: len(dags) for part, dags in data.graphs.items()} == {
        "train": 12, "val": 0, "test": 0,
    }  # fmt: skip


def test_a_graph_with_an_unknown_word_is_left_out_and_listed(schema, tmp_path):
    graphs = {"known": ("add", 1.0), "strange": ("secret_kernel", 1.0)}
    data = load_with_schema(_write(tmp_path / "some", graphs), schema)
    assert data.names["train"] == ("known",)
    assert data.left_out[0].startswith("strange: ")


def test_a_data_set_that_would_learn_a_schema_is_refused(schema, tmp_path):
    with pytest.raises(ConfigError, match="data=latent_preferential can only be read with"):
        load_with_schema(LatentPreferentialConfig(), schema)
    folder = FolderConfig(folder=tmp_path)
    for config, name in (
        (CorpusConfig(num_bins=4), "num_bins"),
        (CorpusConfig(further=tmp_path), "further"),
        (replace(folder, public_words="all"), "public_words"),
        (replace(folder, held_out=0.3), "held_out"),
    ):
        with pytest.raises(ConfigError, match=rf"data\.{name} would be learned from the private"):
            load_with_schema(config, schema)


ABC = GraphSchema.fit("flow", [chain("abc", "abc")])
CBA = GraphSchema.fit("flow", [chain("cb", "cb")])


def test_graphs_of_every_form_get_the_same_codes(tmp_path):
    graph = chain("g", "bcb")
    write_graphml(tmp_path / "g.graphml", graph)
    wanted = ABC.encode(graph).x_NA.tolist()
    dags = encoded([graph, ABC.encode(graph), tmp_path / "g.graphml"], ABC)
    assert [dag.x_NA.tolist() for dag in dags] == [wanted] * 3


def test_codes_of_another_schema_are_translated_by_their_words():
    dag = CBA.encode(chain("g", "bcb"))
    assert dag.x_NA.tolist() != ABC.encode(chain("g", "bcb")).x_NA.tolist()
    (there,) = translated([dag], CBA, ABC)
    assert ABC.decode(there).categories["kind"] == ["b", "c", "b"]
    assert translated([dag], CBA, CBA) == [dag]
    with pytest.raises(VocabularyError, match="'a'"):
        translated([ABC.encode(chain("g", "a"))], ABC, CBA)


def test_jobs_and_sampled_graphs_are_encoded_too(tmp_path):
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
