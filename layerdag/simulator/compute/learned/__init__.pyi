from ._measured import measured_rows as measured_rows, names_of as names_of
from ._operator_latency import OperatorLatency as OperatorLatency
from ._operator_trees import OperatorTrees as OperatorTrees
