from ._stage import stage_trace as stage_trace
from ._tape import Nodes as Nodes, Tape as Tape
from ._transfer import Message as Message, Transfer as Transfer
