"""YAML whose anchors do not multiply: a few lines of it can stand for more than memory holds."""

from typing import Any

import yaml

MAX_CONFIG_BYTES = 16 << 20
"""No configuration file is read beyond this size."""

MAX_VALUES = 100_000
"""No configuration file holds more values; a reference to an anchor counts with all it holds."""


def load_yaml(text: str) -> Any:
    """Return the content of a YAML document; only plain values are made.

    Raises:
        yaml.YAMLError: If it is no YAML, stands for more than ``MAX_VALUES`` values, or has a value
            that contains itself.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is not None and _values(root, {}) > MAX_VALUES:
        raise yaml.YAMLError(
            f"it stands for more than {MAX_VALUES:,} values; write no anchors that repeat each "
            "other"
        )
    return yaml.safe_load(text)


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node stands for; one that contains itself counts as too many."""
    if id(node) not in known:
        known[id(node)] = MAX_VALUES + 1
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            children = [end for pair in node.value for end in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = list(node.value)
        known[id(node)] = 1 + sum(_values(child, known) for child in children)
    return known[id(node)]
