from ._base import (
    NO_PREFIX as NO_PREFIX,
    DAGModel as DAGModel,
    Faults as Faults,
    LossTerm as LossTerm,
    PossibleCodes as PossibleCodes,
    SampleRequest as SampleRequest,
    SampleResult as SampleResult,
)
from ._bounds import (
    MAX_DEPTH as MAX_DEPTH,
    MAX_STEPS as MAX_STEPS,
    MAX_WIDTH as MAX_WIDTH,
    require_between as require_between,
    require_choices as require_choices,
)
from ._conditions import Conditions as Conditions
from ._for_data import predicts_out_degree as predicts_out_degree, spec_for as spec_for
from ._posterior import Posterior as Posterior
from ._spec import (
    ModelSpec as ModelSpec,
    build_model as build_model,
    build_without_weights as build_without_weights,
    model_config as model_config,
)
from .resampling import GapFilling as GapFilling, resample as resample
