"""Simulated serving held against measured loads and measured requests.

``python benchmarks/serving.py DATA [--out FILE]``, where DATA has ``serving.csv`` (one load a row:
model, plan, lengths, concurrency, mean TTFT and TPOT) and ``serving_requests/`` (a folder for each
run of an engine: ``requests.csv``, ``machine.json``, ``profile/tpN/*.csv``).

``--fit`` fits ``layerdag/serving/serving_shares.json`` to the loads first; ``--half SEED`` fits to
a random half of the groups of equal model, device and plan, and judges the others.

Each load is run with ten times as many requests as run at once, lengths even between 0.8 and 1 of
those stated, the first ones all at once, as the published benchmarks do.
"""

import argparse
import csv
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import DataSheet, data_sheet
from layerdag.plan import Plan
from layerdag.runtime.rng import numpy_generator
from layerdag.serving.iteration_time import KIN, ServingEfficiency, SharedRoofline, efficiency_for
from layerdag.serving.iteration_work import BatchLoad, IterationWork, NumberFormats
from layerdag.serving.kv_cache import cache_blocks
from layerdag.serving.requests import Requests
from layerdag.serving.run import Cluster, InstanceGroup, Transfer
from layerdag.serving.scheduler import Limits
from layerdag.serving.simulation import simulate_serving
from layerdag.workloads.transformer.shapes import PRESETS, Latent, ModelShape

ROOT = Path(__file__).parents[1]
SHARES = ROOT / "layerdag" / "serving" / "serving_shares.json"
OUT = ROOT / "benchmarks" / "results" / "serving.json"
SOURCE = (
    "fitted by benchmarks/serving.py --fit to the loads of silicon_sample, aiconfigurator-core "
    "0.12.0, NVIDIA, Apache-2.0; layers: to two runs of LLMServingSim, casys-kaist, MIT"
)
MAX_TOKENS, MOST_SEQUENCES, BLOCK = 8192, 2048, 64
FEWEST_REQUESTS = 2000
TRANSFER_BYTES_PER_S = 50e9


def _like_llama(name: str, layers: int, hidden: int, heads: int, kv_heads: int, inner: int,
                vocabulary: int, **rest: Any) -> ModelShape:  # fmt: skip
    return ModelShape(name, layers, hidden, heads, inner, vocabulary, kv_heads, gated=True,
                      norm="rms", biases="none", **rest)  # fmt: skip


MODELS = {
    "meta-llama/Llama-3.1-70B": PRESETS["llama3-70b"],
    "meta-llama/Llama-3.1-8B": PRESETS["llama3-8b"],
    "meta-llama/Llama-3.1-8B-Instruct": PRESETS["llama3-8b"],
    "nvidia/Llama-3.1-8B-Instruct-FP8": PRESETS["llama3-8b"],
    "deepseek-ai/DeepSeek-R1": PRESETS["deepseek-v3"],
    "deepseek-ai/DeepSeek-V3": PRESETS["deepseek-v3"],
    "nvidia/DeepSeek-R1-NVFP4": PRESETS["deepseek-v3"],
    "Qwen/Qwen3-235B-A22B-FP8": PRESETS["qwen3-235b-a22b"],
    "Qwen/Qwen3-30B-A3B-Instruct-2507": PRESETS["qwen3-30b-a3b"],
    "Qwen/Qwen3-32B": _like_llama(
        "qwen3-32b", 64, 5120, 64, 8, 25600, 151936, head_size=128, qk_norm=True),
    "MiniMaxAI/MiniMax-M2.5": _like_llama(
        "minimax-m2.5", 62, 3072, 48, 8, 1536, 200064, head_size=128, qk_norm=True, experts=256,
        experts_per_token=8),
    "moonshotai/Kimi-K2.5": _like_llama(
        "kimi-k2.5", 61, 7168, 64, 0, 2048, 163840, latent=Latent(query_rank=1536), experts=384,
        experts_per_token=8, shared_experts=1, dense_layers=1, dense_feed_forward=18432,
        router_bias=True),
    # Sparse attention and linear attention are not known here: every layer attends to all.
    "zhipuai/GLM-5": _like_llama(
        "glm-5", 78, 6144, 64, 0, 2048, 154880,
        latent=Latent(query_rank=2048, nope_width=192, value_width=256), experts=256,
        experts_per_token=8, shared_experts=1, dense_layers=3, dense_feed_forward=12288,
        router_bias=True),
    "Qwen/Qwen3.5-397B-A17B": _like_llama(
        "qwen3.5-397b-a17b", 60, 4096, 32, 2, 1024, 248320, head_size=256, experts=512,
        experts_per_token=10, shared_experts=1),
    "openai/gpt-oss-120b": _like_llama(
        "gpt-oss-120b", 36, 2880, 64, 8, 2880, 201088, head_size=64, experts=128,
        experts_per_token=4, window=128),
}  # fmt: skip
MODELS["nvidia/Qwen3-32B-NVFP4"] = MODELS["Qwen/Qwen3-32B"]

PRECISIONS = {
    "fp8": "fp8", "fp8_block": "fp8", "fp4": "nvfp4", "nvfp4": "nvfp4", "bf16": "bf16",
    "int4": "int4_wo", "int4_wo": "int4_wo", "w4a16_mxfp4": "int4_wo", "mxfp4": "int4_wo",
    "w4a8_mxfp4_mxfp8": "int4_wo",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Side:
    """Instances of one kind of a load."""

    work: IterationWork
    workers: int


@dataclass(frozen=True, eq=False)
class Load:
    """One measured load."""

    row: Mapping[str, str]
    sheet: DataSheet
    decode: Side
    prefill: Side | None
    inputs: int
    outputs: int
    concurrency: int
    ttft_s: float
    tpot_s: float

    @property
    def group(self) -> tuple[str, ...]:
        """Model, machine and plan."""
        names = ("model", "device", "kind", "framework", "precision", "tensor", "attention_data",
                 "moe_tensor", "moe_expert", "isl", "osl")  # fmt: skip
        return tuple(self.row[name] for name in names)


def read_loads(path: Path) -> tuple[list[Load], Counter[str]]:
    """Return the loads that can be told apart from their labels, and why others are left out."""
    loads: list[Load] = []
    left_out: Counter[str] = Counter()
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            try:
                loads.append(_load(row))
            except ValueError as error:
                left_out[str(error)] += 1
    return loads, left_out


def _load(row: Mapping[str, str]) -> Load:
    notes = row["notes"]
    if "suspect plan" in notes:
        raise ValueError("suspect plan")
    if "several replicas" in notes or "number of workers" in notes:
        raise ValueError("number of instances not known")
    if (
        not row["ttft_ms"]
        or not row["tpot_ms"]
        or not row["concurrency"]
        or float(row["tpot_ms"]) <= 0
    ):
        raise ValueError("no times")
    if float(row["ttft_ms"]) > 60_000:
        raise ValueError("TTFT above 60 s")
    if not row["precision"] or row["model"] not in MODELS:
        raise ValueError("precision or model not known")
    agg = row["kind"] == "agg"
    decode = _side(row, "" if agg else "decode_")
    prefill = None if agg else _side(row, "prefill_")
    return Load(
        row, data_sheet(row["device"]), decode, prefill, int(row["isl"]), int(row["osl"]),
        int(float(row["concurrency"])), float(row["ttft_ms"]) / 1e3, float(row["tpot_ms"]) / 1e3,
    )  # fmt: skip


def _side(row: Mapping[str, str], prefix: str) -> Side:
    shape = MODELS[row["model"]]
    tensor, data, expert = (
        int(float(row[f"{prefix}{name}"] or 1))
        for name in ("tensor", "attention_data", "moe_expert")
    )
    products = PRECISIONS[row["gemm_precision"] or row["precision"]]
    experts = PRECISIONS[row["moe_precision"] or row["precision"]]
    whole = tensor * data
    expert = expert if shape.experts and expert and whole % expert == 0 else 1
    # Checkpoints of TensorRT-LLM in 8 bits and less have caches of 8 bits.
    kv = "fp8" if row["framework"] == "trtllm" and products != "bf16" else "bf16"
    if shape.heads % tensor:
        raise ValueError("heads do not fill the tensor ranks")
    plan = Plan(tensor=tensor, data=data, expert=expert)
    formats = NumberFormats(products, experts if shape.experts else "", kv)
    return Side(IterationWork(shape, plan, formats), int(float(row.get(f"{prefix}workers") or 1)))


def simulate(load: Load, shares: ServingEfficiency) -> tuple[float, float]:
    """Return mean TTFT and TPOT of a simulated load, in s."""
    seed = zlib.crc32(repr(sorted(load.row.items())).encode())
    generator = numpy_generator(seed, "load")
    count = min(10 * load.concurrency, max(FEWEST_REQUESTS, 2 * load.concurrency))

    def lengths(whole: int) -> np.ndarray:
        return np.maximum(np.rint(whole * generator.uniform(0.8, 1, count)), 1).astype(np.int64)

    asked = Requests(np.zeros(count), lengths(load.inputs), lengths(load.outputs))
    decode = _pool(load, load.decode, shares)
    prefill = transfer = None
    if load.prefill:
        prefill = _pool(load, load.prefill, shares)
        work = load.prefill.work
        held = work.cached_bytes * (1 if work.shape.latent else work.plan.tensor)
        transfer = Transfer(held, TRANSFER_BYTES_PER_S)
    request_s = shares.request_ms * 1e-3
    run = Cluster(
        asked, decode, prefill, transfer, concurrency=load.concurrency, request_s=request_s
    ).run()
    ttft = run.first_token_s - run.requests.arrival_s
    tpot = (run.finish_s - run.first_token_s) / np.maximum(asked.output_tokens - 1, 1)
    return float(np.nanmean(ttft)), float(np.nanmean(tpot))


def _pool(load: Load, side: Side, shares: ServingEfficiency) -> InstanceGroup:
    needed = -(-(load.inputs + load.outputs) // BLOCK) + 1
    try:
        blocks = cache_blocks(
            side.work, load.sheet.memory_gib * 2**30, 0.9, MAX_TOKENS, MOST_SEQUENCES, BLOCK
        )
    except ConfigError:  # the load ran: its engine was told to use more of the memory
        blocks = needed
    time = SharedRoofline(side.work, load.sheet, shares)
    limits = Limits(MOST_SEQUENCES, MAX_TOKENS)
    return InstanceGroup(
        side.workers, side.work.plan.data, time, limits, max(blocks, needed), BLOCK
    )


# --- fit ---------------------------------------------------------------------------------------

START = ServingEfficiency(
    bf16=0.6, f8=0.55, f4=0.45, weights=0.8, weights8=0.7, weights4=0.6, experts=0.8, prefill=0.5,
    decode=0.5, cache=0.7, stream=0.7, link=0.6, sum_us=5, launch_us=12, launch_experts_us=20,
    eager_us=20, host_us=600, host_sequence_us=5, prompt_us=200, agreement_us=300, request_ms=15,
)  # fmt: skip
MOST = {name: 0.95 for name in ("bf16", "f8", "f4", "weights", "weights8", "weights4", "stream")}
MOST |= {"experts": 1.0, "cache": 1.0, "prefill": 0.9, "decode": 0.9, "link": 0.9}
LEAST = {"bf16": 0.55}
"""Bounds of shares; products in 16 bits are few in these loads, and reach more than half alone."""
BY_GENERATION = ("bf16", "f8", "f4", "weights8", "weights4", "cache")
BY_ENGINE = ("sum_us", "launch_experts_us", "eager_us", "host_us", "host_sequence_us", "prompt_us",
             "request_ms")  # fmt: skip
PRIOR, TTFT_WEIGHT = 0.2, 0.4


def _generation(sheet: DataSheet) -> str:
    return KIN.get(sheet.generation, sheet.generation)


class Fit:
    """Shares of generations and engines, fitted to loads by a closed form of their steady state.

    What the simulation adds to the closed form is taken from a simulation of each load at the last
    shares, as a factor.
    """

    def __init__(self, loads: Sequence[Load]) -> None:
        self.loads = loads
        self.generations = sorted({_generation(load.sheet) for load in loads})
        self.engines = sorted({load.row["framework"] for load in loads})
        self.keys: list[tuple[str, str, str]] = []
        for field in fields(ServingEfficiency):
            name = field.name
            by_generation = self.generations if name in (*BY_GENERATION, "launch_us") else [""]
            by_engine = self.engines if name in (*BY_ENGINE, "launch_us") else [""]
            self.keys += [(name, g, e) for g in by_generation for e in by_engine]
        self.start = np.log([getattr(START, name) for name, _, _ in self.keys])
        counts = Counter(load.group[:4] for load in loads)
        middle = float(np.median(list(counts.values())))
        self.weight = np.array([(middle / counts[load.group[:4]]) ** 0.25 for load in loads])
        self.factor = np.ones((len(loads), 2))
        self.measured = np.array([(load.ttft_s, load.tpot_s) for load in loads])
        self._prepare()

    def _prepare(self) -> None:
        """Keep operations and bytes of a step, of one with a prompt, and of a prompt alone."""
        batches = [_steady(load) for load in self.loads]
        self.chunks = np.array([-(-load.inputs // MAX_TOKENS) for load in self.loads])
        self.kernels = [[_numbers(load, batch) for batch in three]
                        for load, three in zip(self.loads, batches, strict=True)]  # fmt: skip

    def shares(self, logs: np.ndarray, load: Load) -> ServingEfficiency:
        """Return the shares of a load."""
        generation, engine = _generation(load.sheet), load.row["framework"]
        found = {
            name: float(np.exp(value))
            for (name, g, e), value in zip(self.keys, logs, strict=True)
            if g in ("", generation) and e in ("", engine)
        }
        return ServingEfficiency(**found)

    def closed_form(self, logs: np.ndarray) -> np.ndarray:
        """Return TTFT and TPOT of each load, shape (L, 2)."""
        known: dict[tuple[str, str], ServingEfficiency] = {}
        made = np.empty((len(self.loads), 2))
        for at, load in enumerate(self.loads):
            key = (_generation(load.sheet), load.row["framework"])
            if key not in known:
                known[key] = self.shares(logs, load)
            shares = known[key]
            step, mixed, alone = (_seconds(numbers, load, shares) for numbers in self.kernels[at])
            chunks, together = int(self.chunks[at]), load.concurrency
            added = chunks * (mixed - step)
            tpot = step + (together - 1) / load.outputs * added
            busy = min(together * added / (load.outputs * tpot), 0.8)
            ttft = shares.request_ms * 1e-3 + step / 2
            ttft += chunks * mixed * (1 + busy / (2 * (1 - busy)))
            ttft += (together - 1) / 2 * chunks * alone / 10
            made[at] = ttft, tpot
        return made

    def run(self) -> np.ndarray:
        """Return the logarithms of the fitted numbers."""
        from scipy.optimize import least_squares

        def soft(errors: np.ndarray, scale: float) -> np.ndarray:
            grown = np.sqrt(1 + (errors / scale) ** 2) - 1
            return np.sign(errors) * np.sqrt(2 * grown) * scale

        def residuals(logs: np.ndarray) -> np.ndarray:
            errors = np.log(self.closed_form(logs) * self.factor / self.measured)
            return np.concatenate([
                self.weight * soft(errors[:, 1], 0.1),
                TTFT_WEIGHT * self.weight * soft(errors[:, 0], 0.3),
                PRIOR * (logs - self.start),
            ])  # fmt: skip

        low = np.array([np.log(LEAST.get(name, 1e-9)) for name, _, _ in self.keys])
        high = np.array([np.log(MOST.get(name, 1e9)) for name, _, _ in self.keys])
        begun = np.clip(self.start, low + 1e-3, high - 1e-3)
        return np.asarray(least_squares(residuals, begun, bounds=(low, high), max_nfev=25).x)


def _steady(load: Load) -> tuple[BatchLoad, BatchLoad, BatchLoad]:
    ranks = load.decode.work.plan.data * load.decode.workers
    each = max(load.concurrency / ranks, 1)
    context = each * (load.inputs + load.outputs / 2)
    chunks = -(-load.inputs // MAX_TOKENS)
    length = load.inputs / chunks
    pairs = load.inputs * (load.inputs + 1) / 2 / chunks
    read = sum(min(load.inputs, MAX_TOKENS * (part + 1)) for part in range(chunks)) / chunks

    def batch(prompts: int, decodes: float) -> BatchLoad:
        numbers = (prompts, prompts * length, prompts * pairs, prompts * read, decodes,
                   context if decodes else 0, decodes + prompts)  # fmt: skip
        return BatchLoad(*(np.array([[float(number)]]) for number in numbers))

    return batch(0, each), batch(1, each), batch(1, 0)


_PRECISION = ("bf16", "f8", "f4")
_FAMILY = ("product", "experts", "prefill", "decode", "stream", "sum", "exchange")


def _numbers(load: Load, batch: BatchLoad) -> tuple[np.ndarray, float, float]:
    """Return family, precision, count, operations and bytes of each kernel, drawn and prompts."""
    work = load.decode.work
    kernels = [*work.local(batch), *work.of_experts(work.plan.data * batch.tokens[0])]
    rows = [
        (_FAMILY.index(k.family), _PRECISION.index(k.precision), k.count,
         float(np.max(k.operations)), float(np.max(k.moved)))
        for k in kernels
    ]  # fmt: skip
    return np.array(rows).T, float(batch.sampled.max()), float(batch.prompts.max())


def _seconds(numbers: tuple[np.ndarray, float, float], load: Load, s: ServingEfficiency) -> float:
    """Return what ``SharedRoofline`` gives, for one iteration, without its arrays."""
    (family, precision, count, operations, moved), drawn, prompts = numbers
    sheet, work = load.sheet, load.decode.work
    kind = precision.astype(int)
    peaks = np.array([s.bf16 * sheet.bf16, s.f8 * sheet.fp8, s.f4 * sheet.fp4])[kind]
    rates = np.array([s.weights, s.weights8, s.weights4])[kind] * sheet.bytes_per_s
    share = np.where(family == 1, s.experts, 1.0)
    peaks = np.where(family == 2, s.prefill * sheet.bf16, share * peaks)
    peaks = np.where(family == 3, s.decode * sheet.bf16, peaks)
    cached = (family == 2) | (family == 3)
    rates = np.where(cached, s.cache * sheet.bytes_per_s, share * rates)
    rates = np.where(family == 4, s.stream * sheet.bytes_per_s, rates)
    each = np.hypot(operations / peaks, moved / rates)
    ranks = np.where(family == 5, work.plan.tensor, work.plan.ranks)
    sent = 2 * (ranks - 1) / ranks * moved / (s.link * sheet.link_bytes_per_s)
    each = np.where(family >= 5, sent + s.sum_us * 1e-6 * np.log2(ranks), each)
    beside = (s.launch_us + s.eager_us * (prompts > 0)) * work.shape.layers
    beside += s.launch_experts_us * work.mixtures + s.host_us
    beside += s.agreement_us * (work.plan.data > 1)
    beside += s.host_sequence_us * drawn + s.prompt_us * prompts
    return float((count * each).sum() + beside * 1e-6)


def fit(loads: Sequence[Load], rounds: int = 2) -> dict[str, Any]:
    """Return what ``serving_shares.json`` holds, without errors and layers."""
    made = Fit([load for load in loads if load.prefill is None])
    logs = made.run()
    for _ in range(rounds - 1):
        found = simulate_all([(load, made.shares(logs, load)) for load in made.loads])
        made.factor = np.clip(found / made.closed_form(logs), 0.2, 5)
        logs = made.run()
    values = {key: float(f"{np.exp(v):.4g}") for key, v in zip(made.keys, logs, strict=True)}

    def number(name: str, generation: str, engine: str) -> float:
        keys = ((name, generation, engine), (name, generation, ""), (name, "", engine),
                (name, "", ""))  # fmt: skip
        return next(values[key] for key in keys if key in values)

    engine_names = (*BY_ENGINE, "launch_us")
    of_devices = [f.name for f in fields(ServingEfficiency) if f.name not in engine_names]
    return {
        "generations": {
            g: {name: number(name, g, "") for name in of_devices} for g in made.generations
        },
        "engines": {
            e: {
                **{name: number(name, "", e) for name in BY_ENGINE},
                "launch_us": {g: number("launch_us", g, e) for g in made.generations},
            }
            for e in made.engines
        },
    }


def shares_in(found: Mapping[str, Any], load: Load) -> ServingEfficiency:
    """Return the shares of a load of what ``fit`` returned."""
    generation = _generation(load.sheet)
    numbers = {**found["generations"][generation], **found["engines"][load.row["framework"]]}
    numbers["launch_us"] = numbers["launch_us"][generation]
    return ServingEfficiency(**numbers)


# --- judge -------------------------------------------------------------------------------------


def _one(pair: tuple[Load, ServingEfficiency]) -> tuple[float, float]:
    return simulate(*pair)


def simulate_all(pairs: Sequence[tuple[Load, ServingEfficiency]], processes: int = 2) -> np.ndarray:
    """Return simulated TTFT and TPOT, shape (L, 2)."""
    with ProcessPoolExecutor(processes) as workers:
        return np.array(list(workers.map(_one, pairs, chunksize=8)))


def judged(loads: Sequence[Load], found: np.ndarray) -> dict[str, Any]:
    """Return median and p90 of relative errors, of all loads and by kind, model, device, engine."""
    measured = np.array([(load.ttft_s, load.tpot_s) for load in loads])
    errors = np.abs(found / measured - 1)
    figures: dict[str, Any] = {"all": _errors(errors)}
    for name in ("kind", "framework", "device", "model"):
        groups: dict[str, list[int]] = defaultdict(list)
        for at, load in enumerate(loads):
            groups[load.row[name]].append(at)
        figures[name] = {group: _errors(errors[rows]) for group, rows in sorted(groups.items())}
    return figures


def _errors(errors: np.ndarray) -> dict[str, Any]:
    def percent(values: np.ndarray, share: float) -> float:
        return round(100 * float(np.quantile(values, share)), 1)

    return {
        "loads": len(errors),
        **{
            f"{name}_percent": {"median": percent(errors[:, at], 0.5),
                                "p90": percent(errors[:, at], 0.9)}
            for at, name in ((1, "tpot"), (0, "ttft"))
        },
    }  # fmt: skip


DEVICES = {"RTXPRO6000": "rtx_pro_6000", "RTX4090": "rtx4090"}


def judge_run(folder: Path) -> dict[str, Any]:
    """Return simulated over measured means of one run of an engine."""
    machine = json.loads((folder / "machine.json").read_text())
    engine = machine["engine"]
    table: dict[str, np.ndarray] = {}
    with (folder / "requests.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name in rows[0]:
        if name != "request":
            table[name] = np.array([float(row[name]) for row in rows])
    tensor, data = engine["tensor_parallel_size"], engine["data_parallel_size"]
    known = json.dumps(machine.get("kv_cache") or {})
    blocks = next((int(value) for key, value in _leaves(json.loads(known)) if "blocks" in key), 0)
    result = simulate_serving(
        MODELS[machine["model"]],
        Requests(
            table["arrival_s"], table["input_tokens"].astype(np.int64),
            table["output_tokens"].astype(np.int64),
        ),
        compute=f"layers:{folder / f'profile/tp{tensor}'},device={DEVICES[machine['hardware']]}",
        tensor=tensor,
        data=data,
        expert=tensor * data if engine["enable_expert_parallel"] else 1,
        max_sequences=engine["max_num_seqs"],
        max_tokens=engine["max_num_batched_tokens"],
        kv_blocks=blocks,
    )  # fmt: skip
    first, last = table["first_token_s"], table["last_token_s"]
    pairs = {
        "latency": (result.latency_s, last - table["arrival_s"]),
        "ttft": (result.ttft_s, first - table["arrival_s"]),
        "tpot": (result.tpot_s, (last - first) / (table["output_tokens"] - 1)),
    }
    return {
        "requests": len(rows),
        "preemptions": result.run.preemptions,
        **{
            name: {
                "simulated_s": round(float(np.mean(found)), 4),
                "measured_s": round(float(np.mean(true)), 4),
                "error_percent": round(100 * float(np.mean(found) / np.mean(true) - 1), 1),
            }
            for name, (found, true) in pairs.items()
        },
    }


def _leaves(found: Any) -> Iterable[tuple[str, Any]]:
    for key, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, dict):
            yield from _leaves(value)
        elif isinstance(value, int | float):
            yield key, value


def main() -> None:
    """Fit where it is asked for, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--fit", action="store_true", help="fit serving_shares.json first")
    parser.add_argument("--half", type=int, metavar="SEED", help="fit to half of the groups")
    parser.add_argument("--most", type=int, metavar="N", help="judge so many loads, drawn")
    args = parser.parse_args()
    loads, left_out = read_loads(args.data / "serving.csv")
    found: dict[str, Any] | None = None
    if args.half is not None:
        groups = sorted({load.group for load in loads})
        order = numpy_generator(args.half, "half").permutation(len(groups))
        chosen = {groups[at] for at in order[: len(groups) // 2].tolist()}
        found = fit([load for load in loads if load.group in chosen])
        loads = [load for load in loads if load.group not in chosen]
    elif args.fit:
        found = fit(loads)
    if args.most and args.most < len(loads):
        drawn = numpy_generator(0, "most").permutation(len(loads))[: args.most]
        loads = [loads[at] for at in sorted(drawn.tolist())]
    if found is None:
        pairs = [(load, efficiency_for(load.sheet, load.row["framework"]).shares) for load in loads]
    else:
        pairs = [(load, shares_in(found, load)) for load in loads]
    figures = judged(loads, simulate_all(pairs))
    whole = {
        "command": "python benchmarks/serving.py DATA"
        + (f" --most {args.most}" if args.most else ""),
        "fitted": "half of the groups, the others are judged" if args.half is not None
        else "shares as shipped, fitted to the open half of the loads",
        "judged": f"{args.most} loads drawn at random" if args.most else "all loads",
        "left_out": dict(left_out),
        "loads": figures,
        "runs": {
            folder.name: judge_run(folder)
            for folder in sorted((args.data / "serving_requests").glob("*/"))
            if (folder / "machine.json").exists()
        },
    }  # fmt: skip
    args.out.write_text(json.dumps(whole, indent=1) + "\n")
    if args.fit and found is not None and args.half is None:
        old = json.loads(SHARES.read_text())
        alone = figures["kind"]["agg"]
        shipped = {
            "what": old["what"],
            "source": SOURCE,
            "median_errors": {
                name: round(alone[f"{name}_percent"]["median"] / 100, 3)
                for name in ("tpot", "ttft")
            },
            **found,
            "layers": old["layers"],
        }
        SHARES.write_text(json.dumps(shipped, indent=1) + "\n")
    print(json.dumps({"all": figures["all"], "kind": figures["kind"], "runs": whole["runs"]},
                     indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
