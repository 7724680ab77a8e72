"""Discrete diffusion on tensors: schedules, noise, draws. Knows no graph and no model."""
