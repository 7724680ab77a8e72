from ._corpus import load_corpus as load_corpus
from ._dgrl import load_dgrl as load_dgrl
from ._folder import load_folder as load_folder
from ._latent_preferential import (
    is_valid as is_valid,
    load_latent_preferential as load_latent_preferential,
)
from ._tpu_tile import load_tpu_tile as load_tpu_tile
