from ._categorical import (
    add_noise as add_noise,
    forward_distribution as forward_distribution,
    reverse_distribution as reverse_distribution,
)
from ._schedule import cosine_alpha_bar as cosine_alpha_bar, strided_timesteps as strided_timesteps
