"""Small generators of DAGs with one interface, to be compared with after equal time.

``fit(data, seconds, seed, **settings)`` returns a ``Fitted``, whose ``sample(num, seed)`` gives
graphs. All see graphs without conditions, in layer order, of one attribute and one type of edge.
"""

from ._base import Fit as Fit, Fitted as Fitted, Orders as Orders
from ._diffusion import fit_diffusion as fit_diffusion
from ._dvae import fit_dvae as fit_dvae
from ._language_model import fit_language_model as fit_language_model
from ._markov import fit_markov as fit_markov
from ._recipes import fit_recipes as fit_recipes
from ._recurrent import fit_recurrent as fit_recurrent
from ._resampler import fit_resampler as fit_resampler
