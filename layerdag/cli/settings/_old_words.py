"""Old names of settings in what a user types, replaced before anything is composed."""

import re
from collections.abc import Sequence

from layerdag._runtime import tell_renamed

_NEW_NAMES = {
    "train": {"model.plans": "model.predict_out_degree"},
    "sample": {"candidates": "best_of"},
}
_OVERRIDE = re.compile(r"(?P<mark>[+~]*)(?P<key>[\w.]+)(?P<rest>=.*)", re.DOTALL)


def with_new_words(name: str, words: Sequence[str]) -> list[str]:
    """Return overrides of the config ``name`` with the new names of settings; warns of old ones."""
    return [_new(word, _NEW_NAMES.get(name, {})) for word in words]


def _new(word: str, names: dict[str, str]) -> str:
    """Return one word with the new name of its setting."""
    match = _OVERRIDE.fullmatch(word)
    if match is None or match["key"] not in names:
        return word
    new = names[match["key"]]
    tell_renamed(match["key"], new)
    return f"{match['mark']}{new}{match['rest']}"
