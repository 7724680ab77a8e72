from ._assign import CostAssigner as CostAssigner
from ._given import GivenNumbers as GivenNumbers
from ._numbers import NumberAssigner as NumberAssigner
