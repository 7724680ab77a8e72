from ._base import (
    NetworkSettings as NetworkSettings,
    NetworkSurrogate as NetworkSurrogate,
)
from ._dag_transformer import (
    DAGAttention as DAGAttention,
    DAGTransformer as DAGTransformer,
    TransformerSettings as TransformerSettings,
    TransformerSurrogate as TransformerSurrogate,
    fit_dag_transformer as fit_dag_transformer,
)
from ._fitting import fit_one as fit_one, fit_several as fit_several
from ._message_passing import (
    MessagePassingSurrogate as MessagePassingSurrogate,
    fit_message_passing as fit_message_passing,
)
from ._network import (
    GraphNetwork as GraphNetwork,
    MessagePassingNetwork as MessagePassingNetwork,
)
from ._training import ranking_loss as ranking_loss
