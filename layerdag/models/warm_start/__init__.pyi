from ._axes import Axis as Axis
from ._describe import axes_of as axes_of
from ._sources import Source as Source, word_kind as word_kind
from ._transfer import (
    TUNABLE as TUNABLE,
    Carried as Carried,
    Trained as Trained,
    carry_over as carry_over,
    spec_from as spec_from,
)
