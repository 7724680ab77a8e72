"""Names that users type: the one that was meant."""

from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?", x the known name spelled most like ``name``; "" if none is.

    It begins with a space, so that it can follow the sentence that says what is wrong.
    """
    near = nearest(name, known)
    return "" if near is None else f" Did you mean '{near}'?"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name spelled most like ``name``, None if none is alike."""
    import difflib  # needed for complaints only

    return next(iter(difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)), None)
