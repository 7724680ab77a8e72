"""Graphs whose repeated blocks are held once, with the number of copies.

A layer of a network, a micro-batch or an expert is a block that occurs several times. ``rolled``
keeps one copy of each block, marks its nodes, and says in the type of each edge between which
copies it runs; ``unrolled`` makes the graph of any number of copies. A model that is trained on
rolled graphs therefore samples blocks that repeat exactly, as often as it is asked to.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
