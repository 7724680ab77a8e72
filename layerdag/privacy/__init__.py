"""What samples give away: copies, membership, attacks, audits."""

from layerdag.privacy.attacks import Fold, cross_fitted_attacks, significant_after_correction
from layerdag.privacy.audit_inputs import search_words
from layerdag.privacy.auditing import (
    CAVEATS,
    Audit,
    WhiteBox,
    audit,
    audit_of,
    figure_cells,
    neighborhood_cells,
    too_few_held_out,
    weight_attacks,
)
from layerdag.privacy.copies import (
    CopyComparison,
    CopyTest,
    DistanceToClosestRecord,
    Novelty,
    kernel_distances,
    keys_of_one_run,
    novelty,
    program_of,
    tuple_keys,
)
from layerdag.privacy.leak_curve import LeakRow
from layerdag.privacy.likelihood_ratio import (
    ShadowLosses,
    auroc_over_shadows,
    balanced_members,
    schema_attacks,
)
from layerdag.privacy.membership import (
    FALSE_POSITIVE_RATE,
    LOW_RATES,
    MARGIN,
    MOST_SCORED,
    Attack,
    Verdict,
    chance_half_width,
    graph_losses,
    likelihood_attack,
)
from layerdag.privacy.membership_attacks import AttackPool
from layerdag.privacy.shadows import (
    LEAST_SHADOWS,
    ShadowModel,
    ShadowSettings,
    attacks_on_losses,
    kept_models,
)

__all__ = [
    "CAVEATS",
    "FALSE_POSITIVE_RATE",
    "LEAST_SHADOWS",
    "LOW_RATES",
    "MARGIN",
    "MOST_SCORED",
    "Attack",
    "AttackPool",
    "Audit",
    "CopyComparison",
    "CopyTest",
    "DistanceToClosestRecord",
    "Fold",
    "LeakRow",
    "Novelty",
    "ShadowLosses",
    "ShadowModel",
    "ShadowSettings",
    "Verdict",
    "WhiteBox",
    "attacks_on_losses",
    "audit",
    "audit_of",
    "auroc_over_shadows",
    "balanced_members",
    "chance_half_width",
    "cross_fitted_attacks",
    "figure_cells",
    "graph_losses",
    "kept_models",
    "kernel_distances",
    "keys_of_one_run",
    "likelihood_attack",
    "neighborhood_cells",
    "novelty",
    "program_of",
    "schema_attacks",
    "search_words",
    "significant_after_correction",
    "too_few_held_out",
    "tuple_keys",
    "weight_attacks",
]
