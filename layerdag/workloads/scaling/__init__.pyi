from ._scale import Scaled as Scaled, scale as scale
