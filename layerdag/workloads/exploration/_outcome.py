"""One plan on one cluster: whether it fits into memory, the time of a step, and its price."""

from dataclasses import dataclass, replace

from layerdag.errors import LayerdagError
from layerdag.simulator import simulate
from layerdag.workloads.exploration._points import Point
from layerdag.workloads.exploration._study import StudiedCluster
from layerdag.workloads.symbolic import Plan, SymbolicJob


@dataclass(frozen=True)
class Outcome:
    """What became of one plan on one cluster.

    Attributes:
        model: Name of the model.
        cluster: Name of the cluster.
        ranks: Number of accelerators.
        data: Replicas.
        tensor: Ranks that share matrices.
        pipeline: Stages.
        context: Ranks that share each sequence.
        expert: Ranks that share the experts.
        micro_batches: Parts of a replica's batch.
        zero: ZeRO stage.
        recompute: What the backward pass computes again.
        sequence_parallel: Whether norms are split over tensor ranks, too.
        schedule: Order of micro-batches.
        memory_gib: Memory of the fullest rank.
        fits: Whether that is at most what the cluster has.
        step_s: Time of a step in seconds, None if it was not simulated.
        compute_s: Compute time in it, mean over ranks.
        exposed_s: The rest, mean over ranks: communication that nothing hides, and idle time.
        tokens_per_s: Tokens of all ranks per second.
        utilization: Model FLOPs utilization: operations of the model's matrix products per second
            over the cluster's peak, without those of recomputation.
        cost: Price of a step, 0 if the cluster has no price.
        error: Why it could not be simulated, "" if it was.
        virtual_stages: Groups of layers that each stage holds.
        key: Hash of everything that went in.
    """

    model: str
    cluster: str
    ranks: int
    data: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    micro_batches: int
    zero: int
    recompute: str
    sequence_parallel: bool
    schedule: str
    memory_gib: float
    fits: bool
    step_s: float | None = None
    compute_s: float | None = None
    exposed_s: float | None = None
    tokens_per_s: float | None = None
    utilization: float | None = None
    cost: float = 0.0
    error: str = ""
    virtual_stages: int = 1
    key: str = ""

    @property
    def plan(self) -> str:
        """The plan in short, without the parts that split nothing."""
        degrees = {
            "data": self.data, "tensor": self.tensor, "pipeline": self.pipeline,
            "context": self.context, "expert": self.expert, "micro-batches": self.micro_batches,
        }  # fmt: skip
        phrases = [f"{name} {value}" for name, value in degrees.items() if value > 1]
        phrases += [f"ZeRO {self.zero}"] if self.zero else []
        phrases += [f"recompute {self.recompute}"] if self.recompute != "none" else []
        phrases += ["sequence parallel"] if self.sequence_parallel else []
        phrases += [f"{self.virtual_stages} virtual stages"] if self.virtual_stages > 1 else []
        phrases += (
            [self.schedule] if self.schedule in ("gpipe", "zb-h1") and self.pipeline > 1 else []
        )
        return ", ".join(phrases) or "one rank"


def try_point(point: Point, cluster: StudiedCluster, key: str = "") -> Outcome:
    """Simulate a step if it fits into memory; what cannot run has an ``error``."""
    job = point.job
    figures = job.summary()
    used = figures["peak_memory"]
    head = {
        "model": job.shape.name, "cluster": point.cluster, "ranks": job.plan.ranks,
        "micro_batches": job.step.micro_batches, **_shown(job.plan),
        "memory_gib": used / 2**30, "fits": used <= cluster.capacity, "key": key,
    }  # fmt: skip
    if used > cluster.capacity:
        return Outcome(**head)
    try:
        result = simulate(job.workload(), cluster.simulated, compute=cluster.compute(used))
    except LayerdagError as error:
        return Outcome(**head, error=str(error))
    seconds = result.makespan_ns / 1e9
    return Outcome(
        **head,
        step_s=seconds,
        compute_s=float(result.compute_ns.mean()) / 1e9,
        exposed_s=float(result.exposed_comm_ns.mean()) / 1e9,
        tokens_per_s=figures["tokens"] / seconds,
        utilization=_utilization(job, cluster, seconds),
        cost=cluster.cost_per_hour * job.plan.ranks * seconds / 3600,
    )


def _shown(plan: Plan) -> dict[str, object]:
    """Return the parts of a plan that an outcome names."""
    names = ("data", "tensor", "pipeline", "context", "expert", "zero", "recompute",
        "sequence_parallel", "schedule", "virtual_stages")  # fmt: skip
    return {name: getattr(plan, name) for name in names}


def _utilization(job: SymbolicJob, cluster: StudiedCluster, seconds: float) -> float:
    """Return model FLOPs utilization: what is computed twice counts once (PaLM, appendix B)."""
    once = SymbolicJob(job.shape, replace(job.plan, recompute="none"), job.step)
    number = "f32" if job.step.precision == "fp32" else "bf16"
    peak = cluster.rates.flops[number] * job.plan.ranks
    return float(once.summary()["matrix_flops"]) / (seconds * peak)
