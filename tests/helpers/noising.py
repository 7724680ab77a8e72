"""The forward process of categorical diffusion as a distribution, to hold samples and steps to."""

import torch


def forward_distribution(
    x_0: torch.Tensor, alpha_bar: torch.Tensor, marginal_K: torch.Tensor
) -> torch.Tensor:
    """Return q(x_t | x_0) as probabilities of shape (..., K)."""
    kept_K = torch.nn.functional.one_hot(x_0, marginal_K.shape[-1]).to(marginal_K)
    return alpha_bar[..., None] * kept_K + (1 - alpha_bar[..., None]) * marginal_K
