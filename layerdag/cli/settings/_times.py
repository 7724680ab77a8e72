"""Lengths of time as users write them."""

import re

from layerdag.errors import UsageError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds_of(text: str, flag: str) -> float:
    """Return a length of time in seconds.

    Args:
        text: A number with or without a unit: 900, 15m, 1h.
        flag: That it was given for, for the message.

    Raises:
        UsageError: If it is none.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"{flag} is '{text}'; write a time such as 900, 15m or 1h.")
    return float(match[1]) * _SECONDS[match[2]]
