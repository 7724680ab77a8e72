from ._audit import (
    CAVEATS as CAVEATS,
    Audit as Audit,
    audit as audit,
    audit_of as audit_of,
    weight_attacks as weight_attacks,
)
from ._compare import attribute_views as attribute_views, compare as compare
from ._diff import diff as diff
from ._read import read as read
from ._train import (
    private_run as private_run,
    require_private as require_private,
    train as train,
)
from ._validate import fix as fix, validate as validate
from ._warm_start import PRETRAINED as PRETRAINED, WarmStart as WarmStart, warm_start as warm_start
from ._workload import workload as workload
from ._write import write as write
from .auditing import (
    WordSearch as WordSearch,
    figure_cells as figure_cells,
    neighborhood_cells as neighborhood_cells,
    percents as percents,
    search_words as search_words,
    too_few_held_out as too_few_held_out,
)
from .publication import release as release
