"""Jobs of programs: the training step that follows from a program and a plan."""

import contextlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from layerdag.datasets.conversion import attributed_graph
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.programs.forward_program import Program
from layerdag.runtime.rng import numpy_generator
from layerdag.schema.plan_tables import PlannedStep, PlanTables
from layerdag.simulator.compute import ComputeModel
from layerdag.traces.trace import Workload

_PLANS = 16
"""Plans that are drawn for a program until one fits it."""


@final
@dataclass(frozen=True, eq=False)
class DerivedJob:
    """A training step that was derived from a program.

    Attributes:
        program: The program.
        plan: Whose step it is.
        workload: One trace for each rank.
        timed: Whether its operators have times.
    """

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
    """Return the step of a program under a plan.

    Args:
        program: The program.
        plan: The plan.
        compute: What times operators; without one they have no times.

    Raises:
        UsageError: If the plan does not fit the program.
        NodeError: If a node cannot run.
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

    Args:
        program: The program.
        family: Of the program.
        plans: To draw from.
        seed: Of the sample.
        compute: What times operators; without one they have no times.

    Raises:
        UsageError: If none of several plans fits.
        NodeError: If a node cannot run.
    """
    rng = plan_generator(seed)
    for _ in range(_PLANS - 1):
        with contextlib.suppress(UsageError):
            return derive_job(program, plans.draw(family, rng), compute)
    return derive_job(program, plans.draw(family, rng), compute)
