from ._filling import GapFilling as GapFilling
from ._resampling import resample as resample
