"""Compute-cost models as the command line, sweeps and ``simulate(compute=...)`` name them.

``MODEL`` or ``MODEL:ARGUMENT,...``; ``CHOICES`` lists the models with their arguments.
"""

import glob
from pathlib import Path

from layerdag._runtime import did_you_mean
from layerdag.errors import ConfigError
from layerdag.simulator import SystemConfig
from layerdag.simulator.compute._base import (
    ComputeModel,
    MeasuredCompute,
    PredictedCompute,
    ReferenceCompute,
)
from layerdag.simulator.compute._grammar import CHOICES, MODELS, number


def compute_model(name: str, system: SystemConfig) -> ComputeModel:
    """Return the model that ``name`` describes, such as "measured" or "systolic:128x128".

    Raises:
        ConfigError: If there is no such model, which names the nearest one, or an argument is
            missing, unknown or not of its form.
    """
    word, colon, rest = name.partition(":")
    if word == "learned":
        return _learned(rest)
    if word == "surrogate":
        return _surrogate(rest)
    positional, options = _arguments(name, rest) if colon else ("", {})
    model = _model(word, positional, options, system)
    if options:
        raise ConfigError(
            f"compute model '{name}': unknown argument '{next(iter(options))}'. Models:\n{CHOICES}"
        )
    return model


def model_files(name: str) -> list[Path]:
    """Return the files that the model is fitted to, as far as they exist."""
    word, _, rest = name.partition(":")
    if word == "learned":
        prefix = Path(rest)
        return sorted(prefix.parent.glob(f"{glob.escape(prefix.name)}.*.et*"))
    if word == "surrogate":
        return sorted(path for path in Path(rest).glob("*") if path.is_file())
    values = (part.partition("=")[2] for part in rest.split(","))
    return [Path(value) for value in values if value.endswith(".csv") and Path(value).is_file()]


def _model(
    word: str, positional: str, options: dict[str, str], system: SystemConfig
) -> ComputeModel:
    """Return the model; takes the options that it knows out of ``options``."""
    if word == "systolic":
        from layerdag.simulator.compute._array_choice import systolic_model

        return systolic_model(positional, options)
    if positional:
        raise ConfigError(
            f"compute model '{word}': '{positional}' is not of the form NAME=VALUE. Models:\n"
            f"{CHOICES}"
        )
    if word == "reference":
        return ReferenceCompute(system)
    if word == "measured":
        return MeasuredCompute(number(word, options, "scale", 1.0))
    from layerdag.simulator.compute._roofline import DEVICES, RooflineCompute

    if word in DEVICES:
        efficiency = number(word, options, "efficiency", 1.0)
        return RooflineCompute(DEVICES[word], efficiency, number(word, options, "launch", 0.0))
    known = [*MODELS, *DEVICES]
    raise ConfigError(
        f"unknown compute model '{word}'.{did_you_mean(word, known)} Known are {', '.join(known)}."
    )


def _learned(prefix: str) -> ComputeModel:
    """Return the model fitted to the workload ``prefix``."""
    if not prefix:
        raise ConfigError(
            "compute model 'learned' needs measured traces; write learned:PREFIX, such as "
            "learned:runs/mine for runs/mine.0.et, runs/mine.1.et, ..."
        )
    from layerdag.simulator.compute.learned import OperatorLatency

    return PredictedCompute(OperatorLatency.from_prefix(prefix).microseconds)


def _surrogate(folder: str) -> ComputeModel:
    """Return the model that ``layerdag surrogate fit --per operator`` wrote."""
    if not folder:
        raise ConfigError(
            "compute model 'surrogate' needs a folder; write surrogate:FOLDER, where 'layerdag "
            "surrogate fit DATA --per operator --out FOLDER' wrote one."
        )
    from layerdag.simulator.compute.learned import OperatorTrees

    return PredictedCompute(OperatorTrees.load(folder).microseconds)


def _arguments(name: str, rest: str) -> tuple[str, dict[str, str]]:
    """Return the argument without a name, "" if there is none, and the others."""
    positional, options = "", {}
    for position, part in enumerate(rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals and position == 0:
            positional = part
        elif not equals or not value or key in options:
            raise ConfigError(
                f"compute model '{name}': '{part}' is given twice or is not of the form "
                f"NAME=VALUE. Models:\n{CHOICES}"
            )
        else:
            options[key] = value
    return positional, options
