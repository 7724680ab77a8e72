from ._graph import FORMS as FORMS, convert_graph as convert_graph
from ._reading import read_inputs as read_inputs, say as say
from ._writing import (
    ENDINGS as ENDINGS,
    require_free as require_free,
    write_traces as write_traces,
)
