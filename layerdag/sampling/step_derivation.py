"""Jobs of programs: the training step that follows from a program and a plan, and its times."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast, final

import numpy as np

from layerdag.codec.vocabulary import operators
from layerdag.datasets.conversion import attributed_graph
from layerdag.errors import CaptureError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.programs.forward_program import Program
from layerdag.programs.targets import Targets
from layerdag.runtime.rng import numpy_generator
from layerdag.schema.durations import Durations
from layerdag.schema.plan_tables import PlannedStep, PlanTables
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import ComputeModel
from layerdag.simulator.compute_choice import compute_model
from layerdag.traces.trace import Trace, Workload

_PLANS = 16
"""Plans that are drawn for a program until one fits it."""
_COSTS = ("num_ops", "tensor_size", "comm_size")


@final
@dataclass(frozen=True, eq=False)
class DerivedJob:
    """A training step that was derived from a program; ``timed`` if its operators have times."""

    program: Program
    plan: PlannedStep
    workload: Workload
    timed: bool

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph of the job, with family, strategy and number of ranks as conditions."""
        graph = attributed_graph(self.workload)
        known = {"family": self.plan.family, "strategy": self.plan.strategy}
        return replace(
            graph, name=self.program.name, conditions={**graph.conditions, **known}, notes=()
        )


def derive_job(
    program: Program, plan: PlannedStep, compute: ComputeModel | None = None
) -> DerivedJob:
    """Return the step of a program under a plan; without a compute model it has no times.

    Raises UsageError if the plan does not fit the program and NodeError if a node cannot run.
    """
    step = program.step(**plan.settings)
    timed = step if compute is None else step.timed(compute)
    return DerivedJob(program, plan, timed.workload(), compute is not None)


def plan_generator(seed: int) -> np.random.Generator:
    """Return what draws the plan of the sample with a seed."""
    return numpy_generator(seed, "plan")


def derive_drawn_job(
    program: Program,
    family: str,
    plans: PlanTables,
    seed: int,
    compute: ComputeModel | None = None,
) -> DerivedJob:
    """Return the step of a program under a plan that is drawn from those of its family.

    A plan that does not fit the program, such as tensor ranks that share no pair of products, is
    drawn again.

    Raises:
        UsageError: If none of several plans fits.
        CaptureError: If an operator fails under a plan that fits.
        NodeError: If a node cannot run.
    """
    rng = plan_generator(seed)
    for _ in range(_PLANS - 1):
        try:
            return derive_job(program, plans.draw(family, rng), compute)
        except CaptureError:
            raise  # no fault of the plan
        except UsageError:
            continue
    return derive_job(program, plans.draw(family, rng), compute)


def requested_compute_model(targets: Targets) -> ComputeModel | None:
    """Return what times operators as it was asked for; None if nothing was.

    Raises ConfigError if there is no such compute model or cluster.
    """
    asked = targets.operator_times
    if asked is None or isinstance(asked, ComputeModel):
        return asked
    cluster = targets.preset
    cluster = Cluster(cluster) if isinstance(cluster, str) else cast(Cluster, cluster)
    return compute_model(str(asked), cluster.with_ranks(1).system)


@final
class DrawnTimes(ComputeModel):
    """Draws how long operators take, and how fast the machine of the job is.

    An operator that no training job has takes as long as those of the nearest costs.
    """

    def __init__(self, durations: Durations, seed: int) -> None:
        self._durations = durations
        self._rng = numpy_generator(seed, "durations")
        self._log_speed = durations.job_factor(float(self._rng.random()))

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``."""
        del on_cpu
        if not len(rows):
            return np.zeros(0, dtype=np.int64)
        words = operators(trace)
        names = [self._durations.nearest_name(words[row]) for row in rows.tolist()]
        cost_NC = np.stack(
            [np.maximum(trace.integers(name)[0][rows], 0) for name in _COSTS], axis=1
        )
        cost_N4 = np.column_stack([cost_NC, np.zeros(len(rows), dtype=np.int64)])
        usual_N = self._durations.usual(names, cost_N4)
        new_N = np.isnan(usual_N)
        if new_N.any():
            usual_N[new_N] = self._durations.usual_of_costs(cost_N4[new_N])
        factor_N = self._durations.node_factors(names, self._rng.random(len(rows)))
        time_N: np.ndarray = np.exp(usual_N + factor_N + self._log_speed)
        return np.maximum(np.round(time_N), 1).astype(np.int64)
