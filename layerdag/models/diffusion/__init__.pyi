from ._encoder import MessagePassingLayer as MessagePassingLayer
from ._model import ReferenceLayerDAG as ReferenceLayerDAG
