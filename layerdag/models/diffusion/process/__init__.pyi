from ._categorical import (
    add_noise as add_noise,
    reverse_distribution as reverse_distribution,
    sample_categorical as sample_categorical,
)
from ._schedule import cosine_alpha_bar as cosine_alpha_bar, strided_timesteps as strided_timesteps
from ._streams import SampleStreams as SampleStreams
from ._subset_draws import choose_with_one_of as choose_with_one_of, gumbel as gumbel
