from ._copies import (
    CopyCounts as CopyCounts,
    CopyTest as CopyTest,
    Resemblance as Resemblance,
    copy_counts as copy_counts,
    count_copies as count_copies,
    keys_of_one_run as keys_of_one_run,
    program_of as program_of,
    tuple_keys as tuple_keys,
)
from ._foreign_words import (
    LEAST_LETTERS as LEAST_LETTERS,
    ForeignWord as ForeignWord,
    foreign_words as foreign_words,
    private_words as private_words,
)
from ._kernel_index import KernelIndex as KernelIndex, kernel_distances as kernel_distances
from ._leak_series import (
    MOST_HELD as MOST_HELD,
    LeakRow as LeakRow,
    LeakTally as LeakTally,
    RandomPart as RandomPart,
    leak_series as leak_series,
)
from ._likelihood_ratio import (
    ShadowLosses as ShadowLosses,
    areas_over_shadows as areas_over_shadows,
    balanced_members as balanced_members,
    likelihood_ratio_attacks as likelihood_ratio_attacks,
    posing_as_members as posing_as_members,
    shadows_as_targets as shadows_as_targets,
)
from ._membership import (
    FALSE_POSITIVE_RATE as FALSE_POSITIVE_RATE,
    MOST_SCORED as MOST_SCORED,
    Attack as Attack,
    attack_by_scores as attack_by_scores,
    graph_losses as graph_losses,
    likelihood_attack as likelihood_attack,
)
from ._memorization import (
    DistanceToClosestRecord as DistanceToClosestRecord,
    NearnessTally as NearnessTally,
    Novelty as Novelty,
    novelty as novelty,
    novelty_of_hashes as novelty_of_hashes,
)
from ._pooled import ModelScores as ModelScores, pooled_attack as pooled_attack
from ._rates import LOW_RATES as LOW_RATES, DetectionRate as DetectionRate, Scores as Scores
from ._schema_attacks import schema_attacks as schema_attacks
from ._verdict import (
    CHANCE as CHANCE,
    MARGIN as MARGIN,
    Need as Need,
    Verdict as Verdict,
    chance_half_width as chance_half_width,
    needed as needed,
    require_graphs as require_graphs,
    round_up as round_up,
)
from .attacks import Inference as Inference, succeeds_among_all as succeeds_among_all
