"""Attacks on the weights and the schema of a checkpoint."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from layerdag.api.auditing.shadows import ShadowReport, ShadowSettings, shadow_attacks
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema
from layerdag.evaluation.privacy import Attack, likelihood_attack, schema_attacks
from layerdag.sampling import checkpoint_schema
from layerdag.training import LoadedCheckpoint

Tell = Callable[[str], None]
_LOG = logging.getLogger("layerdag")


@dataclass(frozen=True)
class WhiteBox:
    """How weights are attacked.

    Attributes:
        shadows: How many shadow models are trained, and for how long; None trains none.
        tell: Takes a line on each of them.
    """

    shadows: ShadowSettings | None = None
    tell: Tell = _LOG.info

    def on(
        self, loaded: LoadedCheckpoint, data: GraphDataset
    ) -> tuple[tuple[Attack, ...], ShadowReport | None]:
        """Return the attacks on weights and schema, and how shadow models were trained.

        Args:
            loaded: Whose weights are attacked.
            data: Training and held-out graphs in its codes.

        Raises:
            UsageError: If there are too few graphs for shadow models, or their start is not at
                hand.
        """
        found = weight_attacks(loaded, data)
        if self.shadows is None:
            return found, None
        known = data.conditioned_on(checkpoint_schema(loaded).condition_names)
        ratios, report = shadow_attacks(loaded, known, self.shadows, self.tell)
        return (*found[:1], *ratios, *found[1:]), report


def weight_attacks(loaded: LoadedCheckpoint, data: GraphDataset) -> tuple[Attack, ...]:
    """Return the attacks on weights and schema, if there are held-out graphs to tell from.

    What further attacks on weights find joins this tuple, and so the audit and its pages.
    """
    if not data.held_out:
        return ()
    names = checkpoint_schema(loaded).condition_names
    if names != data.schema.condition_names:
        data = data.conditioned_on(names)
    members, held_out = data.members, data.held_out
    return (
        likelihood_attack(loaded.model, data.schema, members, held_out),
        *schema_attacks(GraphSchema.from_dict(loaded.schema), members, held_out),
    )
