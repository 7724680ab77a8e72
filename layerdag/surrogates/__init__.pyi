from ._calibration import (
    Calibration as Calibration,
    Predictions as Predictions,
)
from ._evaluation import (
    Coverage as Coverage,
    Evaluation as Evaluation,
    ScoreEstimate as ScoreEstimate,
    evaluation as evaluation,
)
from ._inputs import (
    SampleFile as SampleFile,
    SampleStream as SampleStream,
    hide as hide,
    labeled as labeled,
    read_manifest as read_manifest,
    read_samples as read_samples,
    sample_files as sample_files,
    stream_samples as stream_samples,
    targets as targets,
)
from ._operators import (
    OperatorErrors as OperatorErrors,
    fit_operators as fit_operators,
    operator_errors as operator_errors,
)
from ._scores import (
    EVALUATED as EVALUATED,
    SCORES as SCORES,
    PredictionScore as PredictionScore,
    scores as scores,
)
from ._surrogate import Surrogate as Surrogate
from ._tuning import (
    Search as Search,
    Trial as Trial,
    Tuning as Tuning,
    scored as scored,
    tune as tune,
)
from .families import FAMILIES as FAMILIES
from .saving import (
    SURROGATE as SURROGATE,
    load_notes as load_notes,
    load_surrogate as load_surrogate,
    save_surrogate as save_surrogate,
)
from .tstr import (
    CONDITIONS as CONDITIONS,
    REAL as REAL,
    RELABELED as RELABELED,
    RELATIVE as RELATIVE,
    SHUFFLED as SHUFFLED,
    SYNTHETIC as SYNTHETIC,
    ConditionalError as ConditionalError,
    Gain as Gain,
    Labeled as Labeled,
    ReachedFraction as ReachedFraction,
    TransferReport as TransferReport,
    TransferRow as TransferRow,
    few_real as few_real,
    transfer as transfer,
)
