from ._draw import Drawn as Drawn, draw_samples as draw_samples
from ._plan import drawing_plan as drawing_plan
from ._published import (
    published_conditions as published_conditions,
    published_graphs as published_graphs,
    written_graph as written_graph,
)
from ._renumbering import keys_of as keys_of
from ._sieve import KEPT as KEPT, Sieve as Sieve
