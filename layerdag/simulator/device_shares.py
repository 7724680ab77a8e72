"""The share of each device's data sheet that training steps reach, where nobody asks for more."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceShares:
    """Shares of a data sheet.

    Attributes:
        compute: Share of the peak rate that large matrix products reach in a step.
        memory: Share of the memory bandwidth that element-wise operators reach.
    """

    compute: float
    memory: float


FITTED = {
    "a100-40": DeviceShares(0.82, 0.84),
    "a100-80": DeviceShares(0.82, 0.78),
    "h100": DeviceShares(0.71, 0.72),
    "h200": DeviceShares(0.79, 0.78),
    "b200": DeviceShares(0.78, 0.80),
    "tpu-v4": DeviceShares(0.81, 0.78),
}
"""By name of ``DEVICES``: shares fitted to public training steps, those of products in 16 bits
(docs/reference/accuracy.md); a test holds them against ``workloads/step_shares.json``."""

USUAL = DeviceShares(0.78, 0.79)
"""Shares of a device that no step was fitted to: the mean of the others."""


def shares_of(device: str | None) -> DeviceShares:
    """Return the shares of a device by its name, the usual ones where it was never fitted."""
    return USUAL if device is None else FITTED.get(device, USUAL)
