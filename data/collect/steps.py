"""One training or inference step of a planned run, spread over ranks as the plan says."""

from collections.abc import Callable, Mapping, Sequence

import torch
from models import BUILDERS
from plan import RunPlan
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

Step = Callable[[], None]
Hyper = Mapping[str, int | float | str]


def build_step(plan: RunPlan, rank: int) -> Step:
    """Return a function that runs one step of ``plan`` on this rank."""
    torch.manual_seed(plan.seed)
    model = BUILDERS[plan.family](plan.hyper)
    generator = torch.Generator().manual_seed(plan.seed + rank)
    inputs, target = make_batch(plan, generator)
    if plan.strategy == "pp":
        return pipeline_step(plan, rank, model, (inputs[0], target))
    if plan.phase == "inference":
        return inference_step(model, inputs)
    wrapped = spread(plan, model)
    optimizer = make_optimizer(str(plan.hyper["optimizer"]), wrapped.parameters())
    replicated = dense_parameters(model) if plan.strategy in ("ep", "a2a") else []

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(int(plan.hyper["accumulate"])):
            loss_of(plan.hyper, wrapped(*inputs), target).backward()
        average_gradients(replicated, plan.hyper)
        if plan.hyper["clip"]:
            nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()

    return step


def inference_step(model: nn.Module, inputs: Sequence[Tensor]) -> Step:
    """Return a forward pass without gradients."""
    model.eval()

    def step() -> None:
        with torch.no_grad():
            model(*inputs)

    return step


def spread(plan: RunPlan, model: nn.Module) -> nn.Module:
    """Wrap the model for data parallelism; other strategies are built into it."""
    if plan.strategy == "ddp":
        return DistributedDataParallel(
            model,
            bucket_cap_mb=float(plan.hyper["bucket_mb"]),
            gradient_as_bucket_view=bool(plan.hyper["bucket_view"]),
        )
    if plan.strategy == "fsdp2":
        for block in model.children():
            if any(True for _ in block.parameters()):
                fully_shard(block)
        return fully_shard(model)
    return model


def pipeline_step(plan: RunPlan, rank: int, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Step:
    """Return a step of a pipeline whose stages hold equal shares of the blocks."""
    blocks = list(model.children())
    cuts = [len(blocks) * stage // plan.world_size for stage in range(plan.world_size + 1)]
    stage_model = nn.Sequential(*blocks[cuts[rank] : cuts[rank + 1]])
    stage = PipelineStage(stage_model, rank, plan.world_size, torch.device("cpu"))
    kind = ScheduleGPipe if plan.hyper["schedule"] == "gpipe" else Schedule1F1B
    schedule = kind(
        stage, int(plan.hyper["microbatches"]), loss_fn=lambda y, t: loss_of(plan.hyper, y, t)
    )
    optimizer = make_optimizer(str(plan.hyper["optimizer"]), stage_model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch[0])
        elif rank == plan.world_size - 1:
            schedule.step(target=batch[1], losses=[])
        else:
            schedule.step()
        optimizer.step()

    return step


def make_optimizer(name: str, parameters: object) -> torch.optim.Optimizer:
    """Return an optimizer; single-tensor, multi-tensor and fused variants differ in structure."""
    weights = list(parameters)  # type: ignore[call-overload]
    if name == "sgd":
        return torch.optim.SGD(weights, lr=0.01, foreach=False)
    if name == "momentum":
        return torch.optim.SGD(weights, lr=0.01, momentum=0.9, foreach=True)
    if name == "adam":
        return torch.optim.Adam(weights, lr=1e-3, foreach=False)
    if name == "adamw_foreach":
        return torch.optim.AdamW(weights, lr=1e-3, foreach=True)
    if name == "adamw_fused":
        return torch.optim.AdamW(weights, lr=1e-3, fused=True)
    if name == "adagrad":
        return torch.optim.Adagrad(weights, lr=1e-2, foreach=False)
    return torch.optim.RMSprop(weights, lr=1e-3, foreach=True)


def dense_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that every rank holds: all but experts and embedding tables."""
    local = ("experts.", "tables.")
    return [p for name, p in model.named_parameters() if not any(part in name for part in local)]


def average_gradients(parameters: Sequence[nn.Parameter], hyper: Hyper) -> None:
    """Average the gradients of replicated parameters, one by one or as one vector."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return
    if hyper["sync"] == "each":
        for gradient in gradients:
            distributed.all_reduce(gradient)
            gradient.div_(distributed.get_world_size())
        return
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    distributed.all_reduce(flat)
    flat.div_(distributed.get_world_size())
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def loss_of(hyper: Hyper, output: Tensor, target: Tensor) -> Tensor:
    """Return the loss that fits the shape of the output."""
    if hyper.get("loss") == "mse":
        return functional.mse_loss(output, functional.one_hot(target, output.shape[-1]).float())
    if output.shape[-1] == 1:
        return functional.binary_cross_entropy_with_logits(output, target)
    return functional.cross_entropy(output.flatten(0, -2), target.flatten())


def make_batch(plan: RunPlan, generator: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return the inputs of one step and its target."""
    hyper = plan.hyper
    if plan.family in ("gpt", "bert") or hyper.get("mixer") == "attention":
        return _tokens(hyper, generator)
    if plan.family == "dlrm":
        return _clicks(hyper, generator)
    if plan.family == "gnn":
        return _graph(hyper, generator)
    shape = (3, 16, 16) if plan.family == "cnn" else (32,)
    batch = int(hyper["batch"])
    x = torch.randn(batch, *shape, generator=generator)
    return (x,), torch.randint(10, (batch,), generator=generator)


def _tokens(hyper: Hyper, generator: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return token ids and next tokens, or classes of sequences."""
    batch, time, words = int(hyper["batch"]), int(hyper["time"]), int(hyper["vocabulary"])
    ids = torch.randint(words, (batch, time), generator=generator)
    if hyper.get("task") == "sequence":
        return (ids,), torch.randint(4, (batch,), generator=generator)
    return (ids,), torch.randint(words, (batch, time), generator=generator)


def _clicks(hyper: Hyper, generator: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return dense features, the ids of the local tables (for all ranks), and clicks."""
    ranks, batch = int(hyper.get("parallel", 1)), int(hyper["batch"])
    dense = torch.randn(batch, 13, generator=generator)
    shape = (int(hyper["tables"]) // ranks, batch * ranks, 4)
    ids = torch.randint(200, shape, generator=generator)
    return (dense, ids), torch.rand(batch, 1, generator=generator).round()


def _graph(hyper: Hyper, generator: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return node features, random edges, and classes."""
    nodes, edges = int(hyper["nodes"]), int(hyper["nodes"]) * int(hyper["degree"])
    x = torch.randn(nodes, 16, generator=generator)
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    count = nodes if hyper["readout"] == "node" else 1
    return (x, edge_index), torch.randint(4, (count,), generator=generator)
