from ._degrees import Degrees as Degrees
from ._scale import Scaled as Scaled, scale as scale
