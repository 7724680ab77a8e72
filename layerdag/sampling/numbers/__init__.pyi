from ._assign import CostAssigner as CostAssigner
from ._numbers import NumberAssigner as NumberAssigner
