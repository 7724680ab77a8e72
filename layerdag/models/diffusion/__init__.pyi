from ._encoder import Round as Round
from ._model import ReferenceLayerDAG as ReferenceLayerDAG
