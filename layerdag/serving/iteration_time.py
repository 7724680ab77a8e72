"""How long an iteration of a serving engine takes: its kernels on a device, and the host.

``ServingEfficiency`` has the fitted numbers: the shares of its data sheet that a device gives to
each family of kernels, and further costs of kernels and iterations. ``serving_shares.json`` has
them by generation of devices and by engine, fitted to public measured loads.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any, cast, final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import DataSheet
from layerdag.runtime.settings import did_you_mean
from layerdag.serving.iteration_work import BatchLoad, IterationWork, Kernel

KIN = {
    "blackwell-ultra": "blackwell",
    "blackwell-rtx": "blackwell",
    "ampere": "hopper",
    "ada": "hopper",
}
"""The generation whose fits one without its own takes."""
_USUAL = "hopper"


@dataclass(frozen=True)
class ServingEfficiency:
    """Shares of a data sheet that an iteration gets, and its further costs.

    Attributes:
        bf16: Share of the peak of long products in 16 bits.
        f8: The same in 8 bits.
        f4: The same in 4 bits.
        weights: Share of the memory bandwidth at which weights of 16 bits are read.
        weights8: The same of 8 bits.
        weights4: The same of 4 bits.
        experts: What of these shares products of experts get.
        prefill: Share of the peak in 16 bits that attention of prompts gets.
        decode: The same of attention of sequences that decode.
        cache: Share of the memory bandwidth at which cached keys and values are read.
        stream: The same of norms, activations, sums.
        link: Share of the link that sums and exchanges get.
        sum_us: Further time of a sum of two tensor ranks; grows with the logarithm of their number.
        launch_us: Time to start and end the kernels of a layer.
        launch_experts_us: Further time of a layer with experts: routing, permutations.
        eager_us: Further time of a layer where prompts are in the batch, which no graph of
            kernels covers.
        host_us: Host time of an iteration that nothing hides.
        host_sequence_us: The same for each sequence of the batch.
        prompt_us: The same for each prompt, or chunk of one.
        agreement_us: Time in which data ranks agree on an iteration.
        request_ms: Time of a request outside the engine: HTTP, words to tokens, first answer.
    """

    bf16: float
    f8: float
    f4: float
    weights: float
    weights8: float
    weights4: float
    experts: float
    prefill: float
    decode: float
    cache: float
    stream: float
    link: float
    sum_us: float
    launch_us: float
    launch_experts_us: float
    eager_us: float
    host_us: float
    host_sequence_us: float
    prompt_us: float
    agreement_us: float
    request_ms: float


@cache
def _shipped() -> Mapping[str, Any]:
    file = resources.files("layerdag.serving").joinpath("serving_shares.json")
    return dict(json.loads(file.read_text("utf-8")))


def engines() -> tuple[str, ...]:
    """Return the engines whose host times are fitted."""
    return tuple(_shipped()["engines"])


def efficiency_for(sheet: DataSheet, engine: str) -> tuple[ServingEfficiency, str]:
    """Return the shares of a device's generation, and of an engine on it.

    A note says whose they are where none were fitted to this generation; else it is "".

    Raises:
        ConfigError: If there is no such engine.
    """
    shipped = _shipped()
    if engine not in shipped["engines"]:
        raise ConfigError(
            f"serving: no host times of the engine '{engine}'."
            f"{did_you_mean(engine, shipped['engines'])} Known are {', '.join(engines())}."
        )
    generation = sheet.generation
    known = generation if generation in shipped["generations"] else KIN.get(generation, _USUAL)
    numbers = {**shipped["generations"][known], **shipped["engines"][engine]}
    numbers["launch_us"] = numbers["launch_us"][known]
    note = "" if known == generation else (
        f"no load of {sheet.name} was measured; it gets the shares of {known} devices of its "
        "data sheet"
    )  # fmt: skip
    names = [field.name for field in fields(ServingEfficiency)]
    return ServingEfficiency(**{name: float(numbers[name]) for name in names}), note


def median_errors() -> tuple[float, float]:
    """Return the median relative errors of TPOT and TTFT on the loads of the fit."""
    errors = _shipped()["median_errors"]
    return float(errors["tpot"]), float(errors["ttft"])


def layer_efficiency() -> ServingEfficiency:
    """Return what is added to layers that were timed one by one: host times alone."""
    names = [field.name for field in fields(ServingEfficiency)]
    given = _shipped()["layers"]
    return ServingEfficiency(**{name: float(given.get(name, 0.0)) for name in names})


class IterationTime(ABC):
    """Time of the iterations of an instance."""

    @abstractmethod
    def seconds(self, load: BatchLoad) -> np.ndarray:
        """Return the time of each iteration, shape (S,).

        Args:
            load: Arrays of shape (R, S): one row for each data rank.
        """


def host_us(shares: ServingEfficiency, work: IterationWork, load: BatchLoad) -> np.ndarray:
    """Return what the host adds to iterations, in microseconds, shape (S,)."""
    each = shares.host_sequence_us * load.sampled + shares.prompt_us * load.prompts
    agreement = shares.agreement_us if work.plan.data > 1 else 0.0
    return cast("np.ndarray", shares.host_us + agreement + each.max(axis=0))


@final
class SharedRoofline(IterationTime):
    """Each kernel takes the root of the squares of its time by rate and by bandwidth."""

    def __init__(self, work: IterationWork, sheet: DataSheet, shares: ServingEfficiency) -> None:
        self._work, self._sheet, self._shares = work, sheet, shares
        s = shares
        self._peaks = {
            "bf16": s.bf16 * sheet.bf16,
            "f8": s.f8 * sheet.fp8,
            "f4": s.f4 * sheet.fp4,
        }
        self._rates = {
            "bf16": s.weights * sheet.bytes_per_s,
            "f8": s.weights8 * sheet.bytes_per_s,
            "f4": s.weights4 * sheet.bytes_per_s,
        }

    def seconds(self, load: BatchLoad) -> np.ndarray:
        """See ``IterationTime.seconds``."""
        s, work = self._shares, self._work
        local = sum(self._time(kernel) for kernel in work.local(load))
        # Ranks pad their batches to the longest one, so that all exchange equal parts.
        exchanged = work.plan.data * load.tokens.max(axis=0)
        together = sum(self._time(kernel) for kernel in work.of_experts(exchanged))
        prompts = load.prompts.max(axis=0)
        launches = (s.launch_us + s.eager_us * (prompts > 0)) * work.shape.layers
        launches = launches + s.launch_experts_us * work.mixtures
        further = (launches + host_us(s, work, load)) * 1e-6
        return np.max(local, axis=0) + together + further

    def _time(self, kernel: Kernel) -> np.ndarray:
        s, sheet = self._shares, self._sheet
        if kernel.family in ("sum", "exchange"):
            ranks = self._work.plan.tensor if kernel.family == "sum" else self._work.plan.ranks
            moved = 2.0 * (ranks - 1) / ranks * kernel.moved
            each = moved / (s.link * sheet.link_bytes_per_s)
            return kernel.count * (each + s.sum_us * 1e-6 * np.log2(ranks) * (kernel.moved > 0))
        share = s.experts if kernel.family == "experts" else 1.0
        peak, rate = share * self._peaks[kernel.precision], share * self._rates[kernel.precision]
        if kernel.family == "prefill":
            peak, rate = s.prefill * sheet.bf16, s.cache * sheet.bytes_per_s
        elif kernel.family == "decode":
            peak, rate = s.decode * sheet.bf16, s.cache * sheet.bytes_per_s
        elif kernel.family == "stream":
            rate = s.stream * sheet.bytes_per_s
        return kernel.count * np.hypot(kernel.operations / peak, kernel.moved / rate)
