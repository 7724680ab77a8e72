from ._page import (
    require_replaceable_difference as require_replaceable_difference,
    write_difference as write_difference,
)
