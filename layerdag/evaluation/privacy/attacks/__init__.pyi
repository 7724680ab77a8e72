from ._distance import (
    DensityRatio as DensityRatio,
    DensityTally as DensityTally,
    NearestProgram as NearestProgram,
    NearestSample as NearestSample,
    NearestTally as NearestTally,
)
from ._identification import identified_traits as identified_traits
from ._inference import Inference as Inference
from ._motifs import MotifTally as MotifTally, UniqueMotifs as UniqueMotifs
from ._pool import Pool as Pool, Roles as Roles
from ._properties import inferred_properties as inferred_properties
from ._run import (
    Fold as Fold,
    SampleAttack as SampleAttack,
    all_attacks as all_attacks,
    attacked as attacked,
    cross_fitted_attacks as cross_fitted_attacks,
    outcome_of as outcome_of,
    sample_attacks as sample_attacks,
)
from ._together import succeeds_among_all as succeeds_among_all
from ._traits import Trait as Trait, traits_of as traits_of
