"""The fast model without one of its parts: experiments of configs/experiment/ablation."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from layerdag.cli.compose import compose, to_plain_dict
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.models.spec import ModelSpec
from layerdag.runtime.settings import build_settings
from layerdag.training.model_spec import spec_for
from layerdag.training.settings import TrainSettings


@dataclass(frozen=True)
class Variant:
    """The model without one of its parts.

    Attributes:
        experiment: File of configs/experiment/ablation with the settings of the model.
        sampling: Settings of sampling that are not the usual ones.
        weights_of: Experiment whose weights are used; None trains its own.
    """

    experiment: str = "full"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    weights_of: str | None = None

    @property
    def trained(self) -> str:
        """The experiment that is trained."""
        return self.weights_of or self.experiment


_PLAIN = {"best_of": 1, "guidance": 1.0}
VARIANTS = {
    "full": Variant(),
    "no posterior": Variant(sampling={"best_of": 1}),
    "no posterior, no guidance": Variant(sampling=_PLAIN),
    "no out-degree constraints": Variant("unlimited_out_degree", weights_of="full"),
    "no out-degree prediction": Variant("no_out_degree"),
    "out-degree prediction": Variant("out_degree"),
    "no parent features": Variant("no_parent_features"),
    "no messages": Variant("no_messages"),
    "no attention": Variant("no_attention"),
    "no token dropout": Variant("no_token_dropout"),
    "one position bucket": Variant("one_bucket"),
    "no conditions": Variant("no_conditions", sampling=_PLAIN),
    "independent attributes": Variant("independent_attributes"),
    "all pairs": Variant("all_pairs"),
}
"""By what the documentation calls them, those that need no training of their own first."""


def settings_of(experiment: str, steps: int, seed: int) -> TrainSettings:
    """Return how an experiment is trained."""
    node = {**to_plain_dict(_composed(experiment, steps).training), "seed": seed}
    return build_settings(TrainSettings, node, "training")


def seen_by(experiment: str, data: GraphDataset) -> GraphDataset:
    """Return the data set with the conditions that an experiment keeps."""
    kept = _composed(experiment, 1).conditions
    return data if kept is None else data.conditioned_on(list(kept))


def spec_of(experiment: str, data: GraphDataset) -> ModelSpec:
    """Return the model of an experiment, with exact statistics of the training graphs."""
    data = seen_by(experiment, data)
    settings = to_plain_dict(_composed(experiment, 1).model)
    spec = spec_for(data, settings.pop("name"), settings)
    return replace(spec, statistics=GraphStatistics.measure(data.graphs["train"], spec.sizes))


@functools.cache
def _composed(experiment: str, steps: int) -> Any:
    """Return the settings of an experiment for so many steps, six validations among them."""
    return compose(
        "train",
        [
            f"experiment=ablation/{experiment}",
            f"training.max_steps={steps}",
            f"training.evaluate_every={max(steps // 6, 1)}",
        ],
    )
