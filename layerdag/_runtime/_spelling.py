"""The known name that an unknown one was probably meant to be."""

from collections.abc import Iterable


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the entry of ``known`` (at least one) that is spelled most like ``name``."""
    import difflib  # needed for complaints only

    return difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.0)[0]
