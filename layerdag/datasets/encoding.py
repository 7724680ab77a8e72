"""Graphs of any form in codes of a schema.

Loaders of other modules learn words, bins and scales from the training graphs, and rename words by
what all graphs hold. Here each graph is encoded on its own and nothing is learned from it, so that
what becomes of one does not depend on the others: differential privacy needs that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.datasets.alignment import words_of_attribute
from layerdag.datasets.conversion import CodedGraph, GraphLike, as_dag, attributed_graph, of_kind
from layerdag.datasets.corpus import corpus_parts
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.folder import folder_graphs, folder_labels
from layerdag.datasets.loading import kind_of_folder
from layerdag.datasets.private_words import Renamed, rename_categories
from layerdag.datasets.settings import CorpusConfig, DataConfig, FolderConfig, find_label_file
from layerdag.datasets.splits import named_splits
from layerdag.errors import ConfigError, DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.runtime.notes import Note, merge_notes
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema
from layerdag.traces.chakra.corpus import embedded_corpus, read_index


def encoded(graphs: Iterable[GraphLike], schema: GraphSchema) -> list[DAG]:
    """Return graphs as codes of ``schema``; graphs with codes of another schema are translated.

    Raises VocabularyError if a graph has a word that the schema does not know, and DataError if a
    file cannot be read, or a graph lacks an attribute.
    """
    return [_coded(graph, schema) for graph in graphs]


def translated(dags: Sequence[DAG], own: GraphSchema, schema: GraphSchema) -> list[DAG]:
    """Return graphs with codes of ``own`` as codes of ``schema``; raises as ``encoded``."""
    if have_same_vocabulary(own, schema):
        return list(dags)
    return [schema.encode(own.decode(dag, f"graph {i}")) for i, dag in enumerate(dags)]


def have_same_vocabulary(one: GraphSchema, other: GraphSchema) -> bool:
    """Return whether codes of nodes and edges mean the same in two schemas."""
    return one.attributes == other.attributes and one.edge_types == other.edge_types


_TAKEN = {
    "corpus": ("name", "folder", "max_nodes", "families", "strategies"),
    "folder": ("name", "folder", "labels", "max_nodes"),
}
"""Settings that count where the schema is given, by the data set."""


def load_with_schema(data: DataConfig | str | Path, schema: GraphSchema) -> GraphDataset:
    """Load a corpus or a folder in the codes of a schema that was learned from other graphs.

    A graph with a word that a closed vocabulary lacks is left out and listed; in an open one such a
    word is ``<other>``, and numbers beyond all bins are in the last one. Conditions that the schema
    cannot encode are unknown. Graphs of a folder are all for training, unless its label file has a
    column ``split``. Raises ConfigError if the data set is of another kind, or a setting would
    learn from its graphs, and DataError if the files are missing or damaged.
    """
    if isinstance(data, DataConfig):
        config = data
    elif str(data) == "corpus":
        config = CorpusConfig()
    elif kind_of_folder(Path(data), {}) == "corpus":
        config = CorpusConfig(folder=Path(data))
    else:
        folder = Path(data)
        config = FolderConfig(folder=folder, labels=find_label_file(folder).get("labels"))
    if not isinstance(config, CorpusConfig | FolderConfig):
        raise ConfigError(
            f"data={config.name} can only be read with a schema of its own graphs, which would "
            "reveal them; take data=corpus or data=folder."
        )
    for field in fields(config):
        usual = field.name in _TAKEN[config.name] or field.name == "seed"
        if not usual and getattr(config, field.name) != field.default:
            raise ConfigError(
                f"data.{field.name} would be learned from the private graphs or is that of the "
                "public checkpoint; leave it out."
            )
    known_notes: tuple[Note, ...] = ()
    if isinstance(config, CorpusConfig):
        folder = config.folder or embedded_corpus()
        parts, left_out = corpus_parts(config, folder, read_index(folder))
        name = "corpus"
    else:
        left_out = list[str]()
        known = folder_labels(config)
        noted = list[Note]()
        read = folder_graphs(config, known, left_out, noted, as_jobs=schema.kind.has_traces)
        graphs = [with_attributes_of(graph, schema) for graph in read]
        known_notes = (*known.notes, *noted)
        parts = named_splits(graphs, known.splits)
        name = config.data_name
    found = GraphDataset.with_schema(name, schema, parts)
    notes = merge_notes(
        [*known_notes, *(n for part in parts.values() for g in part for n in g.notes)]
    )
    return found.replaced(left_out=(*left_out, *found.left_out), notes=notes)


@dataclass(frozen=True, eq=False)
class CodedSamples:
    """Samples in codes of a data set, in layer order.

    None, with a sentence in ``reasons``, is a graph with a cycle or with words that the data set
    does not have.
    """

    dags: tuple[DAG | None, ...]
    reasons: tuple[str, ...] = ()

    @property
    def usable(self) -> list[DAG]:
        """The graphs that metrics can look at."""
        return [dag for dag in self.dags if dag is not None]


def coded(
    graphs: Iterable[GraphLike | None],
    schema: GraphSchema | None,
    renamed: Renamed | None = None,
) -> CodedSamples:
    """Return graphs in codes of a schema, and why some cannot be; None is no graph.

    Without a schema only graphs that have codes alone are taken. ``renamed`` are words that the
    data set has instead of others: new -> old, by attribute. Raises UsageError if something is no
    graph.
    """
    dags: list[DAG | None] = []
    reasons = []
    for number, graph in enumerate(graphs):
        try:
            if graph is None:
                raise DataError(f"graph {number}: is no graph.")
            dag = as_dag(graph)
            if dag is None and schema is None:
                raise UsageError(
                    "Only a data set says what words and numbers become in codes; pass a "
                    "GraphDataset as the real graphs, or DAGs of one schema."
                )
            if dag is None and schema is not None:
                dags.append(_coded(graph, schema, f"graph {number}", renamed or {}))
            elif dag is not None:
                dags.append(dag.in_layer_order())
        except DataError as error:
            dags.append(None)
            reasons.append(str(error))
    return CodedSamples(tuple(dags), tuple(reasons))


def _coded(
    graph: GraphLike, schema: GraphSchema, name: str = "graph", renamed: Renamed | None = None
) -> DAG:
    """Return codes of a graph; of one whose words were ``renamed``, attributes may be absent."""
    dag = as_dag(graph)
    if dag is not None:
        return dag
    graph = of_kind(graph, schema.kind)
    if isinstance(graph, CodedGraph) and have_same_vocabulary(graph.schema, schema):
        return graph.dag
    found = attributed_graph(graph, name)
    if renamed is not None:
        found = with_attributes_of(with_old_words(found, renamed), schema)
    return schema.encode(found)


def with_old_words(graph: AttributedGraph, renamed: Renamed) -> AttributedGraph:
    """Return a graph of a user's words in the words that a data set has for them (new -> old)."""
    return rename_categories(
        graph, {name: {old: new for new, old in words.items()} for name, words in renamed.items()}
    )


def with_attributes_of(graph: AttributedGraph, schema: GraphSchema) -> AttributedGraph:
    """Return the graph with exactly the attributes of a schema; one that it lacks is absent.

    Numbers where the schema has words become words.
    """
    words = [a.name for a in schema.attributes if isinstance(a, CategoryAttribute)]
    numbers = [a.name for a in schema.attributes if a.name not in words]
    absent_N = np.full(graph.num_nodes, np.nan)
    return replace(
        graph,
        categories={name: words_of_attribute(graph, name) for name in words},
        numbers={name: graph.numbers.get(name, absent_N) for name in numbers},
    )
