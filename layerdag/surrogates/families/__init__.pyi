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
from ._dag_transformer import (
    DAGAttention as DAGAttention,
    DAGTransformer as DAGTransformer,
    TransformerSettings as TransformerSettings,
    TransformerSurrogate as TransformerSurrogate,
    fit_dag_transformer as fit_dag_transformer,
)
from ._features import graph_features as graph_features
from ._message_passing import (
    MessagePassingSurrogate as MessagePassingSurrogate,
    fit_message_passing as fit_message_passing,
)
from ._network import (
    GraphNetwork as GraphNetwork,
    MessagePassingNetwork as MessagePassingNetwork,
)
from ._rebuild import rebuild as rebuild
from ._spaces import (
    FAMILIES as FAMILIES,
    SINGLE as SINGLE,
    Fit as Fit,
    draw_settings as draw_settings,
    fit_with as fit_with,
    space_of as space_of,
)
from ._stacked import StackedEnsemble as StackedEnsemble, fit_stacked as fit_stacked
from ._training import (
    NetworkSettings as NetworkSettings,
    NetworkSurrogate as NetworkSurrogate,
    ranking_loss as ranking_loss,
)
