"""Every plan of a study on every cluster, and why some cannot be."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from layerdag.errors import ConfigError
from layerdag.workloads.exploration._study import PlanSpace, StudiedCluster, Study
from layerdag.workloads.symbolic import ModelShape, Plan, Step, SymbolicJob


@dataclass(frozen=True)
class Point:
    """A model under a plan on a cluster.

    Attributes:
        cluster: Name of the cluster.
        job: Model, plan and step.
    """

    cluster: str
    job: SymbolicJob


@dataclass(frozen=True)
class Points:
    """What a study tries.

    Attributes:
        possible: Plans that split the model over the cluster.
        left_out: How many plans could not, by the reason.
    """

    possible: tuple[Point, ...]
    left_out: dict[str, int]


def points_of(study: Study) -> Points:
    """Return every plan of the study on every cluster, each once."""
    possible: list[Point] = []
    left_out: Counter[str] = Counter()
    for (name, cluster), shape in itertools.product(study.clusters.items(), study.models):
        for choice in _product(study.plans):
            try:
                possible.append(Point(name, _job(study, shape, cluster, choice)))
            except ConfigError as error:
                left_out[str(error)] += 1
    return Points(tuple(possible), dict(left_out.most_common()))


def _product(plans: PlanSpace) -> Iterator[dict[str, Any]]:
    names = [field.name for field in fields(plans)]
    for values in itertools.product(*(dict.fromkeys(getattr(plans, name)) for name in names)):
        yield dict(zip(names, values, strict=True))


def _job(
    study: Study, shape: ModelShape, cluster: StudiedCluster, choice: dict[str, Any]
) -> SymbolicJob:
    """Return the job; its replicas take the ranks that the other degrees leave."""
    sharing = choice["tensor"] * choice["pipeline"] * choice["context"]
    if sharing < 1 or cluster.ranks % sharing:
        raise ConfigError(
            f"tensor x pipeline x context = {sharing} do not divide {cluster.ranks} ranks."
        )
    degrees = {name: value for name, value in choice.items() if name != "micro_batches"}
    return SymbolicJob(
        shape,
        Plan(data=cluster.ranks // sharing, **degrees),
        Step(micro_batches=choice["micro_batches"], **_step(study, shape)),
    )


def _step(study: Study, shape: ModelShape) -> dict[str, Any]:
    """Return what a step does; images have as many tokens as they have."""
    step = asdict(study.step)
    return {**step, "sequence": shape.image.tokens} if shape.image else step
