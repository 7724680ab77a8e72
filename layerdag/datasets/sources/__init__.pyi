from ._alibaba import load_alibaba as load_alibaba
from ._corpus import load_corpus as load_corpus, run_graph as run_graph
from ._dgrl import load_dgrl as load_dgrl
from ._folder import align_schemas as align_schemas, load_folder as load_folder
from ._given_schema import load_with_schema as load_with_schema
from ._latent_preferential import (
    is_valid as is_valid,
    load_latent_preferential as load_latent_preferential,
)
from ._public_words import is_public as is_public, publish as publish
from ._tpu_tile import load_tpu_tile as load_tpu_tile
