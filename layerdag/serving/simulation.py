"""Serving a model: requests in, latencies out."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from layerdag.errors import UsageError
from layerdag.runtime.notes import Note
from layerdag.runtime.settings import did_you_mean
from layerdag.serving.requests import Arrivals, Requests, read_requests
from layerdag.serving.result import ServiceLimits, ServingResult
from layerdag.serving.run import ServingCluster, Transfer
from layerdag.serving.settings import Machine, ServingSettings, instance_group
from layerdag.workloads.transformer.hugging_face import model as named_model
from layerdag.workloads.transformer.shapes import ModelShape


def simulate_serving(
    model: str | Path | ModelShape,
    requests: Requests | Arrivals | str | Path,
    *,
    slo_ttft_ms: float = 0.0,
    slo_tpot_ms: float = 0.0,
    **settings: Any,
) -> ServingResult:
    """Simulate how an engine with continuous batching and a paged cache answers requests.

    Args:
        model: A model of ``layerdag workload --list``, a ``config.json`` of Hugging Face, or a
            shape.
        requests: Requests, a process that makes them, or a file (``read_requests``).
        slo_ttft_ms: Most time to the first token of a request that counts for goodput, in ms.
        slo_tpot_ms: Most time per further token.
        **settings: Fields of ``ServingSettings``, such as ``compute="h100", tensor=8``.

    Returns:
        Latencies, rates, caches and batches; equal calls give equal ones.

    Raises:
        UsageError: If there is no such model or setting, or numbers do not fit together.
        DataError: If a file cannot be read.
    """
    known = [field.name for field in fields(ServingSettings)]
    for name in settings:
        if name not in known:
            raise UsageError(
                f"simulate_serving has no setting '{name}'.{did_you_mean(name, known)} Known are "
                f"{', '.join(known)}."
            )
    chosen = ServingSettings(**settings)
    notes: tuple[Note, ...] = ()
    if isinstance(requests, Arrivals):
        requests = requests.draw()
    elif not isinstance(requests, Requests):
        found = read_requests(requests)
        requests, notes = found.requests, found.notes
    shape = model if isinstance(model, ModelShape) else named_model(model)
    machine = Machine.of(chosen.compute)
    if len(requests.hashes) and requests.hash_tokens % chosen.block_tokens:
        raise UsageError(
            f"serving: hashes stand for {requests.hash_tokens} tokens, which blocks of "
            f"{chosen.block_tokens} do not fill; choose block_tokens that divides them."
        )
    decode, request_s = instance_group(shape, machine, chosen)
    prefill = transfer = None
    if chosen.prefill_replicas:
        prefill, request_s = instance_group(shape, machine, chosen, prefill=True)
        work = chosen.work(shape, prefill=True)
        transfer = Transfer(
            work.cached_bytes * (1 if shape.latent else work.plan.tensor),
            chosen.transfer_gb_per_s * 1e9,
            chosen.transfer_ms * 1e-3,
        )
    cluster = ServingCluster(
        requests, decode, prefill, transfer, chosen.routing, chosen.concurrency, request_s
    )
    told = list(machine.notes(chosen))
    run = cluster.run()
    if run.refused.any():
        told.append(
            f"{int(run.refused.sum()):,} requests were refused: prompt and answer are longer than "
            f"the {decode.blocks * decode.block_tokens:,} tokens of a cache"
        )
    return ServingResult(
        shape.name, chosen, run, ServiceLimits(slo_ttft_ms, slo_tpot_ms), tuple(told),
        (*shape.notes, *notes),
    )  # fmt: skip
