from ._categorical import (
    add_noise as add_noise,
    draw as draw,
    reverse_distribution as reverse_distribution,
)
from ._schedule import cosine_keep as cosine_keep, strided_times as strided_times
from ._streams import SampleStreams as SampleStreams
from ._subset_draws import choose_with_one_of as choose_with_one_of, gumbel as gumbel
