"""How many examples a law is tried on: a fixed number in ``make test``, more in ``make search``."""

from hypothesis import settings

USUAL = 100


def tried(examples: int) -> settings:
    """Return the settings of a law that ``make test`` checks on ``examples`` examples.

    A profile multiplies that by its own ``max_examples``, per hundred (tests/conftest.py).
    """
    return settings(max_examples=max(1, examples * settings.default.max_examples // USUAL))
