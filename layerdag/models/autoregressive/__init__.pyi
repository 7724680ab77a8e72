from ._conditioning import (
    ConditionEncoder as ConditionEncoder,
    ConditionVectors as ConditionVectors,
    RemainingSizes as RemainingSizes,
)
from ._config import (
    POSITION_BUCKETS as POSITION_BUCKETS,
    ConditioningConfig as ConditioningConfig,
    ConstraintConfig as ConstraintConfig,
    EncoderConfig as EncoderConfig,
    FastConfig as FastConfig,
    HeadsConfig as HeadsConfig,
    PosteriorConfig as PosteriorConfig,
)
from ._constraints import AllowedCodes as AllowedCodes, DegreeConstraints as DegreeConstraints
from ._encoder import EncoderBlock as EncoderBlock, alibi_slopes as alibi_slopes
from ._heads import Heads as Heads, Pointer as Pointer
from ._losses import graphs_of_rows as graphs_of_rows
from ._model import FastLayerDAG as FastLayerDAG
from ._neighborhoods import (
    NATS_PER_VIOLATION as NATS_PER_VIOLATION,
    UNSEEN as UNSEEN,
    NeighborKinds as NeighborKinds,
)
from ._parents import (
    NEVER as NEVER,
    CandidatePairs as CandidatePairs,
    log_code as log_code,
    stub_code as stub_code,
    token_codes as token_codes,
)
from ._tokens import StructuralFeatures as StructuralFeatures, TokenEmbedding as TokenEmbedding
