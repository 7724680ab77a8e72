"""Shape aliases shared by the package.

Legend of dimension names, used as suffixes (``x_NA``) and in jaxtyping annotations everywhere:
N nodes, E edges, L layers, B graphs of a batch, A node attributes, C conditions, F features,
T diffusion steps, K categories.
"""

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

IntsN = Int[np.ndarray, " N"]
Ints2E = Int[np.ndarray, "2 E"]
CodesNA = Int[Tensor, "N A"]
EdgeIndex2E = Int[Tensor, "2 E"]
EdgeTypesE = Int[Tensor, " E"]
FloatsNF = Float[Tensor, "N F"]
