from ._draw import Drawn as Drawn, draw_samples as draw_samples
from ._sieve import (
    KEPT as KEPT,
    Sieve as Sieve,
    keys_of as keys_of,
    written_graph as written_graph,
)
