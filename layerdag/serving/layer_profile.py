"""Iterations from layers that were timed one by one on the machine itself.

A folder has CSV files of times in microseconds, one layer each: ``dense.csv`` (layer, tokens),
``per_sequence.csv`` (layer, sequences), ``attention.csv`` (prefill_chunk, kv_prefill, n_decode,
kv_decode) and, for mixtures, ``moe.csv`` (tokens, activated_experts), all with ``time_us``. That is
what the profiler of LLMServingSim writes (casys-kaist/LLMServingSim, MIT).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from layerdag.errors import DataError
from layerdag.hardware.kernels import interpolated
from layerdag.runtime.settings import did_you_mean
from layerdag.runtime.tables import numbers
from layerdag.serving.iteration_time import IterationTime, ServingEfficiency, host_us
from layerdag.serving.iteration_work import BatchLoad, IterationWork
from layerdag.serving.requests import read_columns
from layerdag.simulator.fitted_collectives import collective_us, fitted_name

_IN_A_LAYER = {"layernorm": 2} | dict.fromkeys(
    ("qkv_proj", "qk_norm", "rotary_emb", "o_proj", "gate_up_proj", "act_fn", "down_proj"), 1
)
"""How often each timed layer runs in a layer of a model; others run once in an iteration."""
_ONCE = ("embedding", "final_layernorm", "lm_head", "sampler")
_MAX_TOKENS = 1 << 16


class _Times:
    def __init__(self, sizes_SA: np.ndarray, us_S: np.ndarray) -> None:
        from scipy.spatial import cKDTree

        self._log_S = np.log(us_S)
        self._tree: Any = cKDTree(np.log2(1.0 + sizes_SA))
        self._known: dict[tuple[float, ...], float] = {}

    def microseconds(self, *sizes: np.ndarray) -> np.ndarray:
        """Return the time at other sizes, one array for each axis."""
        query_QA = np.log2(1.0 + np.stack(sizes, axis=-1))
        # A twelfth of a doubling is closer than the times are known.
        query_QA = np.rint(query_QA * 12) / 12
        keys = list(map(tuple, query_QA.tolist()))
        fresh = [key for key in dict.fromkeys(keys) if key not in self._known]
        if fresh:
            logs = interpolated(self._tree, self._log_S, np.array(fresh))
            self._known.update(zip(fresh, np.exp(logs).tolist(), strict=True))
        return np.array([self._known[key] for key in keys])


@final
class LayerProfile(IterationTime):
    """Times of iterations from a folder of layers that were timed at the tensor degree of the plan.

    ``device`` is the data sheet of the device whose collectives are used, where ranks exchange
    anything.

    Raises:
        DataError: If a file is missing, or a column or a layer is not known.
        ConfigError: If ranks exchange something and the device's collectives are not fitted.
    """

    def __init__(
        self, folder: str | Path, work: IterationWork, shares: ServingEfficiency, device: str = ""
    ) -> None:
        self._work, self._shares, self._device = work, shares, device
        root = Path(folder)
        dense = _layers(root / "dense.csv", "tokens")
        sequences = _layers(root / "per_sequence.csv", "sequences")
        grid = np.unique(np.rint(2 ** np.arange(0, 16.01, 1 / 16)))
        self._grid = np.concatenate([[0], grid])
        self._dense_us = np.zeros_like(self._grid)
        self._once_us = np.zeros_like(self._grid)
        for name, (sizes, us) in dense.items():
            times = np.concatenate([[0], _line(sizes, us, grid)])
            if name in _IN_A_LAYER:
                norms = work.shape.layers * _IN_A_LAYER[name]
                self._dense_us += norms * times
            else:
                self._once_us += times
        self._sequences_us = np.zeros_like(self._grid)
        for sizes, us in sequences.values():
            self._sequences_us += np.concatenate([[0], _line(sizes, us, grid)])
        self._decode, self._prefill, self._mixed = _attention(root / "attention.csv")
        self._experts: _Times | None = None
        if work.mixtures:
            found = _columns(root / "moe.csv", "tokens", "activated_experts")
            sizes = np.stack([found["tokens"], found["activated_experts"]], axis=1)
            self._experts = _Times(sizes, found["time_us"])
        if work.plan.ranks > 1:
            self._device = fitted_name(device)

    def seconds(self, load: BatchLoad) -> np.ndarray:
        """See ``IterationTime.seconds``."""
        shape, plan = self._work.shape, self._work.plan
        tokens, sampled = load.tokens, load.sampled
        local = np.interp(tokens, self._grid, self._dense_us + self._once_us)
        local = local + np.interp(sampled, self._grid, self._sequences_us)
        local = local + shape.layers * self._attention_us(load)
        if plan.tensor > 1:
            local = local + 2 * shape.layers * self._collective("all_reduce", tokens, plan.tensor)
        whole = local.max(axis=0)
        if self._experts is not None:
            # Ranks pad their batches to the longest one, so that all exchange equal parts.
            together = plan.data * tokens.max(axis=0)
            held = shape.experts / plan.expert
            unused = (1 - shape.experts_per_token / shape.experts) ** together
            each = self._experts.microseconds(together / plan.expert, held * (1 - unused))
            if plan.data > 1:
                for operation in ("all_gather", "reduce_scatter"):
                    each = each + self._collective(operation, together, plan.ranks)
            whole = whole + self._work.mixtures * each
        return (whole + host_us(self._shares, self._work, load)) * 1e-6

    def _attention_us(self, load: BatchLoad) -> np.ndarray:
        made = np.zeros(load.prompts.shape)
        prompts, decodes = load.prompts > 0, load.decodes > 0
        context = load.decode_context / np.maximum(load.decodes, 1)
        count = np.maximum(load.prompts, 1)
        chunk = load.prefill_tokens / count
        past = np.maximum(load.prefill_read / count - chunk, 0)
        only = decodes & ~prompts
        if only.any():
            made[only] = self._decode.microseconds(load.decodes[only], context[only])
        if prompts.any():
            alone = self._prefill.microseconds(chunk[prompts], past[prompts])
            made[prompts] = count[prompts] * alone
        both = prompts & decodes
        if both.any():
            first = self._mixed.microseconds(
                chunk[both], past[both], load.decodes[both], context[both]
            )
            alone = self._prefill.microseconds(chunk[both], past[both])
            made[both] = first + (count[both] - 1) * alone
        return made

    def _collective(self, operation: str, tokens: np.ndarray, ranks: int) -> np.ndarray:
        sizes = 2 * self._work.shape.hidden * tokens
        flat = collective_us(self._device, operation, sizes.ravel().tolist(), ranks)
        return np.where(sizes > 0, flat.reshape(sizes.shape), 0.0)


def _columns(path: Path, *sizes: str) -> dict[str, Any]:
    """Return a table of timed layers: names, where it has them, sizes and ``time_us``."""
    known = (*sizes, "time_us")
    found: dict[str, Any] = dict(read_columns(path, known))
    for name, column in found.items():
        if name not in known:
            raise DataError(
                f"{path}: the column '{name}' is not known.{did_you_mean(name, known)} Known are "
                f"{', '.join(known)}; leave it out."
            )
        if name != "layer":
            found[name] = numbers(path, name, column)
    if (found["time_us"] <= 0).any():
        raise DataError(f"{path}: has a time that is not positive; correct it.")
    return found


def _layers(path: Path, size: str) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    columns = _columns(path, "layer", size)
    names = np.array(columns["layer"])
    unknown = sorted(set(names.tolist()) - set(_IN_A_LAYER) - set(_ONCE))
    if unknown:
        raise DataError(
            f"{path}: the layer '{unknown[0]}' is not known; known are "
            f"{', '.join((*_IN_A_LAYER, *_ONCE))}."
        )
    made = {}
    for name in sorted(set(names.tolist())):
        rows = np.flatnonzero(names == name)
        rows = rows[np.argsort(columns[size][rows])]
        made[name] = (columns[size][rows], columns["time_us"][rows])
    return made


def _line(sizes: np.ndarray, us: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.interp(at, sizes, us) * np.maximum(at / sizes[-1], 1.0)


def _attention(path: Path) -> tuple[_Times, _Times, _Times]:
    axes = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    found = _columns(path, *axes)
    sizes = np.stack([found[axis] for axis in axes], axis=1)
    decodes, prompts = sizes[:, 2] > 0, sizes[:, 0] > 0
    times = found["time_us"]
    parts = (decodes & ~prompts, prompts & ~decodes, prompts & decodes)
    picked = ([2, 3], [0, 1], [0, 1, 2, 3])
    if not all(part.any() for part in parts):
        raise DataError(
            f"{path}: needs times of prompts alone, of decodes alone and of both together."
        )
    made = [_Times(sizes[part][:, axis], times[part])
            for part, axis in zip(parts, picked, strict=True)]  # fmt: skip
    return made[0], made[1], made[2]
