from ._fixing import finding_row as finding_row, fix as fix
from ._parts import (
    CheckedPart as CheckedPart,
    check_part as check_part,
    parts_at as parts_at,
)
