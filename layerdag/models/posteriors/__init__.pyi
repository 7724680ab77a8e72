from ._posterior import Posterior as Posterior
from ._size_forecast import (
    BLOCK as BLOCK,
    Normal as Normal,
    Progress as Progress,
    SizeForecast as SizeForecast,
)
