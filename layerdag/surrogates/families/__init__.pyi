from ._base import REACH as REACH, SurrogateModel as SurrogateModel, TargetScale as TargetScale
from ._boosting import (
    BoostedTrees as BoostedTrees,
    BoostingSettings as BoostingSettings,
    fit_boosting as fit_boosting,
)
from ._features import graph_features as graph_features
from ._message_passing import (
    MessagePassingSurrogate as MessagePassingSurrogate,
    NetworkSettings as NetworkSettings,
    fit_message_passing as fit_message_passing,
)
from ._network import MessagePassingNetwork as MessagePassingNetwork
from ._rebuild import rebuild as rebuild
from ._registry import FAMILIES as FAMILIES
