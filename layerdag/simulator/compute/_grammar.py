"""The compute-cost models and their arguments in words, for help and messages."""

from layerdag.errors import ConfigError

CHOICES = """\
reference                        ASTRA-sim's: the roofline of system.json, or recorded durations
measured[:scale=X]               duration_ns where a node has it, else duration_micros; times X
DEVICE[:efficiency=X,launch=NS]  roofline of a100-40, a100-80, h100, h200, b200, tpu-v3 or
                                 tpu-v4
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


def number(model: str, options: dict[str, str], key: str, default: float) -> float:
    """Take a number out of the options.

    Raises:
        ConfigError: If it is not one.
    """
    text = options.pop(key, None)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"compute model '{model}': {key} is '{text}'; give a number, such as {key}={default:g}."
        ) from None
