from ._content import (
    Answer as Answer,
    CategoryFractions as CategoryFractions,
    Distribution as Distribution,
    Lane as Lane,
    Neighbors as Neighbors,
    ReportContent as ReportContent,
    Sample as Sample,
    SummaryRow as SummaryRow,
    SystemTimes as SystemTimes,
    Timeline as Timeline,
)
from ._document import document as document
from ._gather import (
    attribute_shares as attribute_shares,
    structure_distributions as structure_distributions,
    summary_rows as summary_rows,
)
from ._neighbors import NearestReal as NearestReal, nearest_real as nearest_real
from ._page import (
    figures_of as figures_of,
    plain as plain,
    render as render,
    require_replaceable_page as require_replaceable_page,
    require_replaceable_report as require_replaceable_report,
    write_report as write_report,
)
from ._verdicts import (
    AS_REAL as AS_REAL,
    CLOSE as CLOSE,
    MAY_BE_SHARED as MAY_BE_SHARED,
    likeness as likeness,
    mean_ratio as mean_ratio,
    median_ratio as median_ratio,
    sharing as sharing,
    usefulness_of as usefulness_of,
)
from .charts import (
    distribution_chart as distribution_chart,
    legend as legend,
    ratio_strip as ratio_strip,
    shares_chart as shares_chart,
)
