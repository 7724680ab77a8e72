from ._report import (
    RELATIVE as RELATIVE,
    ConditionalError as ConditionalError,
    Gain as Gain,
    ReachedFraction as ReachedFraction,
    Score as Score,
    TransferReport as TransferReport,
    TransferRow as TransferRow,
)
from ._training_sets import (
    AUGMENTED as AUGMENTED,
    CONDITIONS as CONDITIONS,
    REAL as REAL,
    REDRAWN as REDRAWN,
    RELABELED as RELABELED,
    SHUFFLED as SHUFFLED,
    SUBSAMPLE as SUBSAMPLE,
    SYNTHETIC as SYNTHETIC,
    Labeled as Labeled,
    few_real as few_real,
    training_set as training_set,
)
from ._transfer import transfer as transfer
