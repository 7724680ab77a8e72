"""Models that predict performance from a graph."""

from layerdag.surrogates.data import (
    CONDITIONS,
    REAL,
    RELABELED,
    SHUFFLED,
    SYNTHETIC,
    Labeled,
    OperatorErrors,
    SampleFile,
    few_real,
    fit_operators,
    labeled,
    read_manifest,
    read_samples,
    sample_files,
    stream_samples,
)
from layerdag.surrogates.files import SURROGATE, save_surrogate
from layerdag.surrogates.scoring import SCORES, ScoreEstimate, SurrogateScores
from layerdag.surrogates.surrogate import FittedSurrogate
from layerdag.surrogates.tstr import (
    RELATIVE,
    ConditionalError,
    ReachedFraction,
    TransferReport,
    TransferRow,
    evaluate_tstr,
)
from layerdag.surrogates.tuning import Search, Trial, Tuning, scored, tune

__all__ = [
    "CONDITIONS",
    "REAL",
    "RELABELED",
    "RELATIVE",
    "SCORES",
    "SHUFFLED",
    "SURROGATE",
    "SYNTHETIC",
    "ConditionalError",
    "FittedSurrogate",
    "Labeled",
    "OperatorErrors",
    "ReachedFraction",
    "SampleFile",
    "ScoreEstimate",
    "Search",
    "SurrogateScores",
    "TransferReport",
    "TransferRow",
    "Trial",
    "Tuning",
    "evaluate_tstr",
    "few_real",
    "fit_operators",
    "labeled",
    "read_manifest",
    "read_samples",
    "sample_files",
    "save_surrogate",
    "scored",
    "stream_samples",
    "tune",
]
