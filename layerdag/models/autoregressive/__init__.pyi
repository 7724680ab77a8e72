from ._conditioning import (
    STAGES as STAGES,
    ConditionEncoder as ConditionEncoder,
    ConditionVectors as ConditionVectors,
)
from ._constraints import Arity as Arity
from ._counts import CountCode as CountCode, Counter as Counter, SumEmbedding as SumEmbedding
from ._encoder import (
    TrunkBlock as TrunkBlock,
    dropout as dropout,
    segment_mean as segment_mean,
    slopes as slopes,
)
from ._heads import Heads as Heads, Pointer as Pointer
from ._model import FastLayerDAG as FastLayerDAG
from ._parents import (
    NEVER as NEVER,
    Candidates as Candidates,
    log_code as log_code,
    stub_code as stub_code,
    token_codes as token_codes,
)
from ._tokens import Place as Place, TokenEmbedding as TokenEmbedding
