from ._page import (
    require_replaceable_exploration as require_replaceable_exploration,
    write_exploration as write_exploration,
)
