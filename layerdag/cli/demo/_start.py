"""What the demo's model starts from: the shipped checkpoint, if it saw no job that is held out."""

from dataclasses import replace

from layerdag.api import PRETRAINED, WarmStart, warm_start
from layerdag.cli.demo._stages import DemoSettings
from layerdag.datasets import GraphDataset
from layerdag.datasets.sources import load_corpus
from layerdag.sampling import pretrained_checkpoint
from layerdag.training import load_checkpoint


def load_stage(settings: DemoSettings) -> tuple[GraphDataset, WarmStart | None]:
    """Load the corpus, and the weights to start from.

    The shipped checkpoint is used only if its training, validation and test graphs are those of
    the corpus, by the fingerprint of the split. The demo then takes the smaller jobs of each part,
    so that no job that it holds out was ever trained on, and trains on the further jobs that the
    checkpoint was trained on, too, if they are there.

    Returns:
        The jobs of at most ``settings.max_nodes`` nodes, and the start; None for random weights.
    """
    shipped = load_checkpoint(pretrained_checkpoint())
    largest = int(shipped.data_settings.get("max_nodes", settings.max_nodes))
    further = shipped.data_settings.get("further")
    found = further is not None and (settings.data / str(further)).is_dir()
    whole = load_corpus(
        settings.data,
        max_nodes=max(largest, settings.max_nodes),
        further=str(further) if found else None,
    )
    data = at_most(whole, settings.max_nodes)
    if shipped.meta.split is None or shipped.meta.split.differing(whole.split):
        return data, None
    return data, warm_start(PRETRAINED, data, seed=settings.seed)


def at_most(data: GraphDataset, max_nodes: int) -> GraphDataset:
    """Return the graphs of at most so many nodes, each in its part, with the same schema."""
    kept = {
        split: [i for i, dag in enumerate(dags) if dag.num_nodes <= max_nodes]
        for split, dags in data.graphs.items()
    }
    larger = [
        f"{data.names[split][i]}: {dag.num_nodes} nodes, more than {max_nodes}"
        for split, dags in data.graphs.items()
        for i, dag in enumerate(dags)
        if dag.num_nodes > max_nodes
    ]
    return replace(
        data,
        graphs={split: tuple(data.graphs[split][i] for i in rows) for split, rows in kept.items()},
        names={split: tuple(data.names[split][i] for i in rows) for split, rows in kept.items()},
        contents={
            split: tuple(data.contents[split][i] for i in rows) for split, rows in kept.items()
        },
        left_out=(*data.left_out, *larger),
    )
