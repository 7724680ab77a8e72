"""Private graphs in the codes of a public schema: nothing is learned from them.

The loaders of every other module learn words, bins and scales from the training graphs, and rename
words by what all graphs hold. Here each graph is encoded on its own, so that what becomes of one
does not depend on the others: differential privacy needs that.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from layerdag.codec import AttributedGraph
from layerdag.datasets import (
    CorpusConfig,
    DataConfig,
    FolderConfig,
    GraphDataset,
    kind_of_folder,
    labels_in,
    named_splits,
)
from layerdag.datasets.schema import CategoryAttribute, GraphSchema
from layerdag.datasets.sources._corpus import corpus_parts
from layerdag.datasets.sources._folder import folder_graphs, folder_labels
from layerdag.errors import ConfigError

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
    column ``split``.

    Args:
        data: Settings of the data set, or "corpus", or a folder.
        schema: What the codes mean.

    Raises:
        ConfigError: If the data set is of another kind, or a setting would learn from its graphs.
        DataError: If the files are missing or damaged.
    """
    config = data if isinstance(data, DataConfig) else _config_of(data)
    if not isinstance(config, CorpusConfig | FolderConfig):
        raise ConfigError(
            f"data={config.name} can only be read with a schema of its own graphs, which would "
            "reveal them; take data=corpus or data=folder."
        )
    _require_usual(config)
    if isinstance(config, CorpusConfig):
        parts, left_out = corpus_parts(
            config.folder, config.max_nodes, config.families, config.strategies
        )
        name = "corpus"
    else:
        left_out = list[str]()
        known = folder_labels(config)
        graphs = [_fitting(graph, schema) for graph in folder_graphs(config, known, left_out)]
        parts = named_splits(graphs, known.splits)
        name = config.folder.name
    found = GraphDataset.with_schema(name, schema, parts)
    return replace(found, left_out=(*left_out, *found.left_out))


def _config_of(data: str | Path) -> DataConfig:
    """Return the settings of the embedded corpus, or of what lies in a folder."""
    if str(data) == "corpus":
        return CorpusConfig()
    folder = Path(data)
    if kind_of_folder(folder, {}) == "corpus":
        return CorpusConfig(folder=folder)
    return FolderConfig(folder=folder, labels=labels_in(folder).get("labels"))


def _require_usual(config: CorpusConfig | FolderConfig) -> None:
    """Raise ConfigError if a setting asks for something to be learned, or for further graphs."""
    for field in fields(config):
        usual = field.name in _TAKEN[config.name] or field.name == "seed"
        if not usual and getattr(config, field.name) != field.default:
            raise ConfigError(
                f"data.{field.name} would be learned from the private graphs or is that of the "
                "public checkpoint; leave it out."
            )


def _fitting(graph: AttributedGraph, schema: GraphSchema) -> AttributedGraph:
    """Return the graph with exactly the attributes of a schema; one that it lacks is absent."""
    words: dict[str, Sequence[str]] = {}
    numbers: dict[str, np.ndarray] = {}
    for attribute in schema.attributes:
        name = attribute.name
        if isinstance(attribute, CategoryAttribute):
            words[name] = graph.categories.get(name) or [""] * graph.num_nodes
        else:
            numbers[name] = graph.numbers.get(name, np.full(graph.num_nodes, np.nan))
    categories = {name: list(column) for name, column in words.items()}
    return replace(graph, categories=categories, numbers=numbers)
