"""Compute-cost models by the names that the command line and sweeps use."""

from layerdag._runtime import nearest
from layerdag.errors import ConfigError
from layerdag.simulator import SystemConfig
from layerdag.simulator.compute._base import ComputeModel, MeasuredCompute, ReferenceCompute


def compute_model(name: str, system: SystemConfig) -> ComputeModel:
    """Return the model called ``name``: "reference", "measured", or the roofline of a device.

    Raises:
        ConfigError: If there is no such model; names the nearest one.
    """
    if name == "reference":
        return ReferenceCompute(system)
    if name == "measured":
        return MeasuredCompute()
    from layerdag.simulator.compute._roofline import DEVICES, RooflineCompute

    if name in DEVICES:
        return RooflineCompute(DEVICES[name])
    known = ["reference", "measured", *DEVICES]
    raise ConfigError(
        f"unknown compute model '{name}'; did you mean '{nearest(name, known)}'? Known are "
        f"{', '.join(known)}."
    )
