from ._config import (
    ConditioningConfig as ConditioningConfig,
    EdgeConfig as EdgeConfig,
    LayerSizeConfig as LayerSizeConfig,
    NodeConfig as NodeConfig,
    ReferenceConfig as ReferenceConfig,
)
from ._model import ReferenceLayerDAG as ReferenceLayerDAG
