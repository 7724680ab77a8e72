"""What is simulated: device, engine, plan, limits, instances."""

from dataclasses import dataclass, replace

from layerdag.errors import ConfigError, UsageError
from layerdag.hardware.devices import DataSheet, data_sheet
from layerdag.plan import Plan
from layerdag.serving.iteration_time import (
    IterationTime,
    SharedRoofline,
    efficiency_for,
    layer_efficiency,
    median_errors,
)
from layerdag.serving.iteration_work import IterationWork, NumberFormats
from layerdag.serving.kv_cache import cache_blocks
from layerdag.serving.layer_profile import LayerProfile
from layerdag.serving.run import InstanceGroup
from layerdag.serving.scheduler import Limits
from layerdag.workloads.transformer.shapes import ModelShape

LAYERS = "layers"
COMPUTE = """\
DEVICE                    data sheet of h100, h200, b200, a100-80, l40s, rtx4090, rtx_pro_6000, ...
                          at the shares that public measured loads reach on it
layers:FOLDER,device=NAME layers that were timed on the machine itself (dense.csv, per_sequence.csv,
                          attention.csv, moe.csv); memory and links are those of the device
"""


@dataclass(frozen=True)
class ServingSettings:
    """A serving cluster.

    Attributes:
        compute: Device such as h100, or layers:FOLDER,device=NAME (``COMPUTE`` explains both).
        engine: vllm, sglang or trtllm: whose host times are added.
        tensor: Ranks that share each layer.
        data: Ranks of an instance that attend to sequences of their own.
        expert: Ranks that whole experts are spread over.
        precision: Of weights and products: bf16, fp8, nvfp4 or int4_wo.
        expert_precision: Of experts; "" for the same.
        kv_precision: Of cached keys and values: bf16 or fp8.
        replicas: Instances; with ``prefill_replicas`` those that decode.
        prefill_replicas: Instances for prompts alone; 0 where the same do both.
        prefill_tensor: Tensor ranks of these; 0 for as many.
        max_sequences: Most sequences of a rank at a time (max_num_seqs).
        max_tokens: Most tokens of an iteration of a rank (max_num_batched_tokens).
        chunked: Whether prompts may be cut.
        mixed: Whether prompts share iterations with sequences that decode.
        block_tokens: Tokens of a block of the cache.
        memory_share: Share of the memory that an engine takes (gpu_memory_utilization).
        memory_gib: Of a device; 0 for that of its data sheet.
        kv_blocks: Blocks of the cache of a rank; 0 for what the memory leaves.
        routing: least-loaded, round-robin or prefix.
        concurrency: Most requests at a time, of which each waits for another; 0 for no limit.
        transfer_gb_per_s: Rate at which a cache goes from prefill to decode.
        transfer_ms: Latency of such a transfer.
        host_us: Host time of an iteration, in place of the fitted one; negative for that.

    Raises:
        ConfigError: If a number is not possible.
    """

    compute: str = "h100"
    engine: str = "vllm"
    tensor: int = 1
    data: int = 1
    expert: int = 1
    precision: str = "bf16"
    expert_precision: str = ""
    kv_precision: str = "bf16"
    replicas: int = 1
    prefill_replicas: int = 0
    prefill_tensor: int = 0
    max_sequences: int = 256
    max_tokens: int = 8192
    chunked: bool = True
    mixed: bool = True
    block_tokens: int = 16
    memory_share: float = 0.9
    memory_gib: float = 0.0
    kv_blocks: int = 0
    routing: str = "least-loaded"
    concurrency: int = 0
    transfer_gb_per_s: float = 50.0
    transfer_ms: float = 0.0
    host_us: float = -1.0

    def __post_init__(self) -> None:
        for least, names in (
            (1, ("replicas", "max_sequences", "max_tokens", "block_tokens")),
            (0, ("prefill_replicas", "prefill_tensor", "kv_blocks", "concurrency")),
        ):
            for name in names:
                value = getattr(self, name)
                if type(value) is not int or value < least:
                    raise ConfigError(
                        f"serving: {name} is {value!r}; it must be a whole number of at least "
                        f"{least}."
                    )
        if not 0 < self.memory_share <= 1:
            raise ConfigError(
                f"serving: memory_share is {self.memory_share}; give a share above 0, at most 1."
            )
        if not self.transfer_gb_per_s > 0 or self.transfer_ms < 0 or self.memory_gib < 0:
            raise ConfigError("serving: rate, latency and memory must be positive numbers.")
        if self.max_tokens < self.max_sequences and self.mixed:
            raise ConfigError(
                f"serving: {self.max_sequences} sequences decode with a token each, more than the "
                f"{self.max_tokens} tokens of an iteration; raise max_tokens."
            )

    def work(self, shape: ModelShape, prefill: bool = False) -> IterationWork:
        """Return what iterations of an instance ask of a device."""
        tensor = (self.prefill_tensor if prefill else 0) or self.tensor
        return IterationWork(
            shape,
            Plan(tensor=tensor, data=self.data, expert=self.expert),
            NumberFormats(self.precision, self.expert_precision, self.kv_precision),
        )

    @property
    def devices(self) -> int:
        """Devices of all instances."""
        prefill = (self.prefill_tensor or self.tensor) * self.prefill_replicas
        return self.data * (self.tensor * self.replicas + prefill)


@dataclass(frozen=True)
class Machine:
    """A device; ``layers`` is a folder of timed layers, "" for the shares of its data sheet."""

    sheet: DataSheet
    layers: str = ""

    @classmethod
    def of(cls, compute: str) -> "Machine":
        """Return what ``COMPUTE`` describes.

        Raises:
            UsageError: If the device is not known or the words are not of that form.
        """
        word, colon, rest = compute.partition(":")
        if not colon:
            return cls(data_sheet(word))
        folder, *options = rest.split(",")
        given = dict(option.partition("=")[::2] for option in options)
        if word != LAYERS or not folder or set(given) != {"device"}:
            raise UsageError(f"serving: compute is '{compute}'; write one of these:\n{COMPUTE}")
        return cls(data_sheet(given["device"]), folder)

    def time(self, work: IterationWork, settings: ServingSettings) -> tuple[IterationTime, float]:
        """Return the time of iterations, and of a request before it reaches the engine, in s."""
        fitted = layer_efficiency()
        if not self.layers:
            fitted, _ = efficiency_for(self.sheet, settings.engine)
        shares = replace(fitted, host_us=settings.host_us) if settings.host_us >= 0 else fitted
        request_s = shares.request_ms * 1e-3
        if self.layers:
            return LayerProfile(self.layers, work, shares, self.sheet.name), request_s
        return SharedRoofline(work, self.sheet, shares), request_s

    def notes(self, settings: ServingSettings) -> tuple[str, ...]:
        """Return what a reader of the times should know, one sentence each."""
        if self.layers:
            return (
                "kernels as timed one by one; host time as fitted to two public runs of 300 "
                "requests (vLLM 0.19)",
            )
        _, note = efficiency_for(self.sheet, settings.engine)
        tpot, ttft = median_errors()
        told = (
            f"median error on the public loads of {settings.engine} and others that the shares "
            f"were fitted to: {tpot:.0%} of TPOT, {ttft:.0%} of TTFT"
        )
        return (told, note) if note else (told,)


def instance_group(
    shape: ModelShape, machine: Machine, settings: ServingSettings, prefill: bool = False
) -> tuple[InstanceGroup, float]:
    """Return the instances of one kind, and the time before a request reaches them, in s.

    Raises:
        UsageError: If plan and model do not fit, or the weights leave no memory for a cache.
    """
    work = settings.work(shape, prefill)
    time, request_s = machine.time(work, settings)
    memory = (settings.memory_gib or machine.sheet.memory_gib) * 2**30
    blocks = settings.kv_blocks or cache_blocks(
        work, memory, settings.memory_share, settings.max_tokens, settings.max_sequences,
        settings.block_tokens,
    )  # fmt: skip
    made = InstanceGroup(
        instances=settings.prefill_replicas if prefill else settings.replicas,
        ranks=settings.data,
        time=time,
        limits=Limits(
            settings.max_sequences, settings.max_tokens, settings.chunked, settings.mixed
        ),
        blocks=blocks,
        block_tokens=settings.block_tokens,
    )
    return made, request_s
