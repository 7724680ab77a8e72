from ._alibaba import load_alibaba as load_alibaba
from ._corpus import load_corpus as load_corpus, run_graph as run_graph
from ._folder import (
    MAX_WORDS as MAX_WORDS,
    align_schemas as align_schemas,
    as_job as as_job,
    dataset_of as dataset_of,
    folder_graphs as folder_graphs,
    folder_labels as folder_labels,
    kind_of as kind_of,
    load_folder as load_folder,
    sizes_of_parts as sizes_of_parts,
    with_attributes as with_attributes,
)
from ._given_schema import load_with_schema as load_with_schema
from ._latent_preferential import (
    is_valid as is_valid,
    load_latent_preferential as load_latent_preferential,
)
from ._public_words import (
    EDGE as EDGE,
    is_public as is_public,
    new_words as new_words,
    publish as publish,
    with_words as with_words,
    words_of as words_of,
)
from ._tpu_tile import load_tpu_tile as load_tpu_tile
from .dgrl import load_dgrl as load_dgrl
from .packed import pack_folder as pack_folder
