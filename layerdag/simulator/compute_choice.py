"""Compute models as the command line, sweeps and ``simulate(compute=...)`` name them.

``MODEL`` or ``MODEL:ARGUMENT,...``; ``CHOICES`` lists the models with their arguments.
"""

import glob
from pathlib import Path

from layerdag.errors import ConfigError, LayerdagError
from layerdag.hardware.devices import shares_of
from layerdag.runtime.settings import did_you_mean
from layerdag.simulator.compute import (
    ComputeModel,
    MeasuredCompute,
    PredictedCompute,
    ReferenceCompute,
)
from layerdag.simulator.compute_arguments import arguments_of, number
from layerdag.simulator.config import SystemConfig

CHOICES = """\
reference                        ASTRA-sim's: the roofline of system.json, or recorded durations
measured[:scale=X]               duration_ns where a node has it, else duration_micros; times X
measured:DEVICE[,tf32=1][,operators=FILE]
                                 kernels measured on a100-40, a100-80, h100, h200, b200, or of
                                 their nearest kin; tf32=1: float32 products run as TF32;
                                 operators: fitted to a CSV of operators that you timed, or to
                                 the prefix of traces that 'layerdag collect' made on a GPU
DEVICE[:efficiency=X,launch=NS]  roofline of a100-40, a100-80, h100, h200, b200, l40s, tpu-v3 or
                                 tpu-v4, at the shares of its peaks that training steps reach
                                 (efficiency=1: data sheet at 100 %)
systolic:ROWSxCOLUMNS[,dataflow=ws|os|is][,clock=GHZ | ,map=MAP][,bandwidth=GB/s][,elementwise=CSV]
                                 cycles of a systolic array at a clock (default: 1 GHz), or mapped
                                 to time: tpu-v4, tpu-v4-regions, tpu-v4-ranges, tpu-v6e,
                                 tpu-v6e-ranges (128x128, ws), or fitted to a CSV with the columns
                                 m, n, k, latency_us; other operators by bandwidth or by a CSV
                                 with d0, d1, d2, latency_us, else as measured
learned:PREFIX                   boosted trees fitted to the measured operators of another workload
surrogate:FOLDER                 the same fitted once on many traces, by 'layerdag surrogate fit
                                 DATA --per operator --out FOLDER'
"""
MODELS = ("reference", "measured", "systolic", "learned", "surrogate")


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
    positional, options = arguments_of(name, rest, CHOICES) if colon else ("", {})
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
    operators = next((p[10:] for p in rest.split(",") if p.startswith("operators=")), "")
    if operators and not operators.endswith(".csv"):
        return model_files(f"learned:{operators}")
    values = (part.partition("=")[2] for part in rest.split(","))
    return [Path(value) for value in values if value.endswith(".csv") and Path(value).is_file()]


def _model(
    word: str, positional: str, options: dict[str, str], system: SystemConfig
) -> ComputeModel:
    """Return the model; takes the options that it knows out of ``options``."""
    if word == "systolic":
        from layerdag.simulator.systolic_choice import systolic_model

        return systolic_model(positional, options)
    if word == "measured" and positional:
        return _measured_kernels(positional, options)
    if positional:
        raise ConfigError(
            f"compute model '{word}': '{positional}' is not of the form NAME=VALUE. Models:\n"
            f"{CHOICES}"
        )
    if word == "reference":
        return ReferenceCompute(system)
    if word == "measured":
        return MeasuredCompute(number(word, options, "scale", 1.0))
    from layerdag.hardware.devices import DEVICES
    from layerdag.simulator.compute import RooflineCompute

    if word in DEVICES:
        launch = number(word, options, "launch", 0.0)
        if "efficiency" in options:
            efficiency = number(word, options, "efficiency", 1.0)
            return RooflineCompute(DEVICES[word], efficiency, launch)
        shares = shares_of(word)
        return RooflineCompute(
            DEVICES[word], shares.compute, launch, memory_efficiency=shares.memory
        )
    known = [*MODELS, *DEVICES]
    raise ConfigError(
        f"unknown compute model '{word}'.{did_you_mean(word, known)} Known are {', '.join(known)}."
    )


def _measured_kernels(device: str, options: dict[str, str]) -> ComputeModel:
    """Return the kernels of a device, fitted to operators of the user's where these are named."""
    from layerdag.simulator.measured_kernels import MeasuredKernels

    tf32 = bool(number("measured", options, "tf32", 0.0))
    path = options.pop("operators", None)
    if path is None:
        return MeasuredKernels(device, tf32=tf32)
    from layerdag.simulator.operator_timings import calibrate_operators, read_operators

    try:
        found = calibrate_operators(read_operators(path), device, tf32)
    except LayerdagError as error:
        raise ConfigError(f"compute model 'measured': {error}") from None
    # Tables know other machines; these numbers are those of the user's.
    return MeasuredKernels(device, tf32=tf32, tables=False, fits=found.fits, note=found.line)


def _learned(prefix: str) -> ComputeModel:
    if not prefix:
        raise ConfigError(
            "compute model 'learned' needs measured traces; write learned:PREFIX, such as "
            "learned:runs/mine for runs/mine.0.et, runs/mine.1.et, ..."
        )
    from layerdag.simulator.learned import OperatorLatency

    return PredictedCompute(OperatorLatency.from_prefix(prefix).microseconds)


def _surrogate(folder: str) -> ComputeModel:
    if not folder:
        raise ConfigError(
            "compute model 'surrogate' needs a folder; write surrogate:FOLDER, where 'layerdag "
            "surrogate fit DATA --per operator --out FOLDER' wrote one."
        )
    from layerdag.simulator.learned import OperatorTrees

    return PredictedCompute(OperatorTrees.load(folder).microseconds)
