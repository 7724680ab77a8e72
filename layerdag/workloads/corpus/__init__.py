"""Corpora of LLM training steps to learn from: points of a space as small labelled graphs.

A point is a model, a plan and a batch. Its graph is that of the whole job with layers rolled up
(``layerdag.codec.blocks``), its label the simulated time of a step.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
