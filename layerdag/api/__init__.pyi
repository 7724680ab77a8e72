from ._audit import audit as audit
from ._compare import attribute_views as attribute_views, compare as compare
from ._diff import diff as diff
from ._read import read as read
from ._train import (
    private_run as private_run,
    require_private as require_private,
    train as train,
)
from ._validate import fix as fix, validate as validate
from ._warm_start import (
    PRETRAINED as PRETRAINED,
    WarmStart as WarmStart,
    checkpoint_folder as checkpoint_folder,
    warm_start as warm_start,
)
from ._workload import workload as workload
from ._write import write as write
from .auditing import (
    CAVEATS as CAVEATS,
    Audit as Audit,
    WhiteBox as WhiteBox,
    WordSearch as WordSearch,
    audit_of as audit_of,
    figure_cells as figure_cells,
    neighborhood_cells as neighborhood_cells,
    search_words as search_words,
    too_few_held_out as too_few_held_out,
    weight_attacks as weight_attacks,
)
from .auditing.shadows import ShadowReport as ShadowReport, ShadowSettings as ShadowSettings
from .publication import release as release
