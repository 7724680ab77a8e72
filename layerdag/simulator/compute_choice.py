"""Compute models as the command line, sweeps and ``simulate(compute=...)`` name them.

``MODEL`` or ``MODEL:ARGUMENT,...``; ``CHOICES`` lists the models with their arguments.
"""

import glob
import re
from pathlib import Path

from layerdag.errors import ConfigError, LayerdagError
from layerdag.hardware.devices import DEVICES, shares_of
from layerdag.runtime.settings import did_you_mean
from layerdag.simulator.compute import (
    ComputeModel,
    MeasuredCompute,
    PredictedCompute,
    ReferenceCompute,
    RooflineCompute,
)
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
    word, _, rest = name.partition(":")
    if word in ("learned", "surrogate"):
        return _learned(word, rest)
    positional, options = _arguments(name, rest)
    if word == "systolic":
        model = _systolic(positional, options)
    elif word == "measured" and positional:
        model = _measured_kernels(positional, options)
    elif positional:
        raise ConfigError(
            f"compute model '{word}': '{positional}' is not of the form NAME=VALUE. Models:\n"
            f"{CHOICES}"
        )
    elif word == "reference":
        model = ReferenceCompute(system)
    elif word == "measured":
        model = MeasuredCompute(_number(word, options, "scale", 1.0))
    elif word in DEVICES:
        launch = _number(word, options, "launch", 0.0)
        if "efficiency" in options:
            model = RooflineCompute(
                DEVICES[word], _number(word, options, "efficiency", 1.0), launch
            )
        else:
            shares = shares_of(word)
            model = RooflineCompute(
                DEVICES[word], shares.compute, launch, memory_efficiency=shares.memory
            )
    else:
        known = [*MODELS, *DEVICES]
        raise ConfigError(
            f"unknown compute model '{word}'.{did_you_mean(word, known)} Known are "
            f"{', '.join(known)}."
        )
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


def _arguments(name: str, rest: str) -> tuple[str, dict[str, str]]:
    """Return the argument without a name, "" if there is none, and the others."""
    positional, options = "", {}
    for position, part in enumerate(rest.split(",") if ":" in name else ()):
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


def _number(model: str, options: dict[str, str], key: str, default: float) -> float:
    """Take a number out of the options."""
    text = options.pop(key, None)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"compute model '{model}': {key} is '{text}'; give a number, such as {key}={default:g}."
        ) from None


def _learned(word: str, place: str) -> ComputeModel:
    from layerdag.simulator.learned import OperatorLatency, OperatorTrees

    if word == "learned":
        if place:
            return PredictedCompute(OperatorLatency.from_prefix(place).microseconds)
        raise ConfigError(
            "compute model 'learned' needs measured traces; write learned:PREFIX, such as "
            "learned:runs/mine for runs/mine.0.et, runs/mine.1.et, ..."
        )
    if place:
        return PredictedCompute(OperatorTrees.load(place).microseconds)
    raise ConfigError(
        "compute model 'surrogate' needs a folder; write surrogate:FOLDER, where 'layerdag "
        "surrogate fit DATA --per operator --out FOLDER' wrote one."
    )


def _measured_kernels(device: str, options: dict[str, str]) -> ComputeModel:
    """Return the kernels of a device, fitted to the user's own operators where these are named."""
    from layerdag.simulator.measured_kernels import MeasuredKernels

    tf32 = bool(_number("measured", options, "tf32", 0.0))
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


def _systolic(size: str, options: dict[str, str]) -> ComputeModel:
    """Return the array ``ROWSxCOLUMNS``; takes the options that it knows out of ``options``."""
    from layerdag.simulator.learned import ElementwiseLatency
    from layerdag.simulator.systolic import (
        FITTED_ON,
        MAPS,
        BatchReduction,
        Clock,
        CyclesToTime,
        Dataflow,
        SystolicArray,
        SystolicCompute,
        read_map,
    )

    match = re.fullmatch(r"(\d{1,6})x(\d{1,6})", size)
    if not match:
        raise ConfigError(
            f"compute model 'systolic': '{size}' is no size; write ROWSxCOLUMNS, such as "
            "systolic:128x128."
        )
    dataflow = options.pop("dataflow", "ws")
    if dataflow not in [each.value for each in Dataflow]:
        raise ConfigError(
            f"compute model 'systolic': dataflow is '{dataflow}'; it is ws (weight stationary), os "
            "(output stationary) or is (input stationary)."
        )
    array = SystolicArray(int(match[1]), int(match[2]), Dataflow(dataflow))
    if "clock" in options and "map" in options:
        raise ConfigError("compute model 'systolic': give a clock or a map, not both.")
    name = options.pop("map", None)
    to_time: CyclesToTime
    batch: BatchReduction | None = None
    if name is None:
        to_time = Clock(_number("systolic", options, "clock", 1.0))
    elif name.endswith(".csv"):
        to_time = read_map(array, name)
    elif name not in MAPS:
        raise ConfigError(
            f"compute model 'systolic': unknown map '{name}'.{did_you_mean(name, MAPS)} "
            f"Known are {', '.join(MAPS)}, and a CSV of your own."
        )
    elif array != FITTED_ON:
        raise ConfigError(
            f"compute model 'systolic': the map {name} was fitted to systolic:128x128,dataflow=ws; "
            "use that array, a clock, or a CSV of your own measurements."
        )
    else:
        to_time, batch = MAPS[name]
    bandwidth = _number("systolic", options, "bandwidth", 0.0) if "bandwidth" in options else None
    learned = options.pop("elementwise", None)
    return SystolicCompute(
        array,
        to_time,
        batch=batch,
        bytes_per_ns=bandwidth,
        elementwise=ElementwiseLatency.from_csv(learned) if learned else None,
    )
