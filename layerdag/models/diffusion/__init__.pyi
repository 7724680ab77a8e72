from ._model import ReferenceLayerDAG as ReferenceLayerDAG
