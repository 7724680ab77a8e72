from ._categorical import CategoryAttribute as CategoryAttribute
from ._condition_fit import fit_table as fit_table
from ._condition_table import ConditionTable as ConditionTable
from ._conditions import (
    LABEL as LABEL,
    CategoryCondition as CategoryCondition,
    NumericCondition as NumericCondition,
)
from ._numeric import NumericAttribute as NumericAttribute
from ._requests import (
    complete_conditions as complete_conditions,
    outside_training as outside_training,
)
from ._schema import (
    MEASURED as MEASURED,
    GraphSchema as GraphSchema,
    NumberForm as NumberForm,
)
