from ._additive import (
    AdditiveCosts as AdditiveCosts,
    AdditiveSettings as AdditiveSettings,
    fit_additive as fit_additive,
)
from ._base import REACH as REACH, SurrogateModel as SurrogateModel, TargetScale as TargetScale
from ._boosting import (
    BoostedTrees as BoostedTrees,
    BoostingSettings as BoostingSettings,
    fit_boosting as fit_boosting,
)
from ._features import graph_features as graph_features
from ._rebuild import rebuild as rebuild, rebuild_output as rebuild_output
from ._spaces import (
    FAMILIES as FAMILIES,
    SHARED as SHARED,
    SINGLE as SINGLE,
    Fit as Fit,
    SharedFit as SharedFit,
    draw_settings as draw_settings,
    fit_shared_with as fit_shared_with,
    fit_with as fit_with,
    space_of as space_of,
)
from ._stacked import StackedEnsemble as StackedEnsemble, fit_stacked as fit_stacked
from .networks import (
    DAGAttention as DAGAttention,
    DAGTransformer as DAGTransformer,
    GraphNetwork as GraphNetwork,
    MessagePassingNetwork as MessagePassingNetwork,
    MessagePassingSurrogate as MessagePassingSurrogate,
    NetworkSettings as NetworkSettings,
    NetworkSurrogate as NetworkSurrogate,
    TransformerSettings as TransformerSettings,
    TransformerSurrogate as TransformerSurrogate,
    fit_dag_transformer as fit_dag_transformer,
    fit_message_passing as fit_message_passing,
    ranking_loss as ranking_loss,
)
