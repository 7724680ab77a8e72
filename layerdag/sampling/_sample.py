"""Samples in memory from a checkpoint, or from the one inside the package."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from layerdag.errors import ConfigError
from layerdag.graph import Condition
from layerdag.sampling._generated import GeneratedGraph
from layerdag.sampling._sampling import checkpoint_schema, generate
from layerdag.sampling._settings import GenerationSettings
from layerdag.training import LoadedCheckpoint, load_checkpoint

SHIPPED = {"pretrained": "corpus", "llm": "llm"}
"""Folders of the checkpoints inside the package, by the names that users type."""


def sample(
    checkpoint: LoadedCheckpoint | str | Path | None = None,
    num: int = 16,
    seed: int = 0,
    *,
    conditions: Mapping[str, Condition] | None = None,
    **settings: Any,
) -> list[GeneratedGraph]:
    """Sample graphs into memory.

    Args:
        checkpoint: What ``train`` or ``load_checkpoint`` returned, or a checkpoint's folder; None
            is the checkpoint inside the package, which samples training jobs, "llm" the one of LLM
            training steps.
        num: Number of graphs.
        seed: Graph i is sampled with ``seed + i`` and depends on nothing else of the call.
        conditions: Wanted conditions in their own units, such as ``{"family": "gpt"}``; open ones
            are drawn from what the training graphs were like.
        **settings: Further ``GenerationSettings``: steps, guidance, best_of, max_nodes, ...

    Returns:
        Graphs with ``dag`` (codes), ``graph`` (names and numbers) and ``workload()`` (traces).

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        UsageError: If a setting is out of bounds.
        VocabularyError: If a condition or its category is unknown; names the nearest one.
    """
    if not isinstance(checkpoint, LoadedCheckpoint):
        name = str(checkpoint or "pretrained")
        folder = pretrained_checkpoint(name) if name in SHIPPED else Path(name)
        checkpoint = load_checkpoint(folder)
    wanted = GenerationSettings(num=num, seed=seed, conditions=conditions or {}, **settings)
    return list(generate(checkpoint.model, checkpoint_schema(checkpoint), wanted))


def pretrained_checkpoint(name: str = "pretrained") -> Path:
    """Return the folder of a checkpoint inside the package.

    Args:
        name: One of ``SHIPPED``: "pretrained" samples jobs like those of the embedded corpus, "llm"
            training steps of LLMs.

    Raises:
        ConfigError: If the package was built without it.
    """
    folder = Path(str(files("layerdag"))) / "pretrained" / SHIPPED[name]
    if not folder.is_dir():
        raise ConfigError("This layerdag has no pretrained checkpoint; name a checkpoint's folder.")
    return folder
