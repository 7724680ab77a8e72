from ._categorical import CategoryAttribute as CategoryAttribute
from ._conditions import LABEL as LABEL
from ._requests import (
    complete_conditions as complete_conditions,
    outside_training as outside_training,
)
from ._schema import GraphSchema as GraphSchema
