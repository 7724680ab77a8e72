from ._graph import point_graph as point_graph
from ._points import CorpusPoint as CorpusPoint, draw_points as draw_points
from ._space import CorpusSpace as CorpusSpace, Machine as Machine, read_space as read_space
from ._write import write_corpus as write_corpus
