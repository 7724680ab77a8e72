"""YAML whose anchors do not multiply: a few lines of it can stand for more than memory holds."""

from typing import Any

import yaml

MAX_CONFIG_BYTES = 16 << 20
"""No configuration file is read beyond this size."""

MAX_VALUES = 100_000
"""No configuration file holds more values; a reference to an anchor counts with all it holds."""

_TOO_MANY = (
    f"it stands for more than {MAX_VALUES:,} values; write no anchors that repeat each other"
)


def load_yaml(text: str) -> Any:
    """Return the content of a YAML document; only plain values are made.

    Raises:
        yaml.YAMLError: If it is no YAML, stands for more than ``MAX_VALUES`` values, or has a value
            that contains itself.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is not None and _values(root, {}) > MAX_VALUES:
        raise yaml.YAMLError(_TOO_MANY)
    return yaml.safe_load(text)


def load_yaml_texts(text: str) -> Any:
    """Return the content of a YAML document with every scalar as the text that it is.

    Raises:
        yaml.YAMLError: As ``load_yaml``, or if a key of the document stands twice: of two, readers
            do not agree on which counts.
    """
    root = yaml.compose(text, Loader=yaml.BaseLoader)
    if root is not None and _values(root, {}) > MAX_VALUES:
        raise yaml.YAMLError(_TOO_MANY)
    if isinstance(root, yaml.MappingNode):
        keys = [key.value for key, _ in root.value]
        twice = next((key for at, key in enumerate(keys) if key in keys[:at]), None)
        if twice is not None:
            raise yaml.YAMLError(f"key '{twice}' stands twice")
    return yaml.load(text, Loader=yaml.BaseLoader)  # makes nothing but texts, lists and mappings


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
