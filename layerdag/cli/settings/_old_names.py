"""Old names of settings in what a user types, replaced before anything is composed."""

import re
from collections.abc import Sequence

from layerdag._runtime import tell_all_renamed
from layerdag.models import RENAMED_ARGUMENTS
from layerdag.training import RENAMED_SETTINGS

_OVERRIDE = re.compile(r"(?P<mark>[+~]*)(?P<key>[\w.]+)(?P<rest>=.*)", re.DOTALL)


def with_new_names(name: str, overrides: Sequence[str]) -> list[str]:
    """Return overrides of the config ``name`` with the new names of settings; warns of old ones."""
    names = _new_names(name)
    matches = [_OVERRIDE.fullmatch(override) for override in overrides]
    found = [match["key"] for match in matches if match and match["key"] in names]
    tell_all_renamed([(old, names[old]) for old in found])
    return [
        f"{match['mark']}{names[match['key']]}{match['rest']}"
        if match and match["key"] in names
        else override
        for override, match in zip(overrides, matches, strict=True)
    ]


def _new_names(name: str) -> dict[str, str]:
    """Return the new name of each renamed setting of a config by the old one, in full."""
    if name == "sample":
        return {"candidates": "best_of"}
    groups = [("training", RENAMED_SETTINGS)]
    groups += [("model", renamed) for renamed in RENAMED_ARGUMENTS.values()]
    return {
        f"{group}.{old}": f"{group}.{new}"
        for group, renamed in groups
        for old, new in renamed.items()
    }
