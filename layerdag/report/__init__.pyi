from ._charts import (
    distribution_chart as distribution_chart,
    legend as legend,
    ratio_strip as ratio_strip,
    shares_chart as shares_chart,
)
from ._content import (
    Answer as Answer,
    CategoryFractions as CategoryFractions,
    Distribution as Distribution,
    ReportContent as ReportContent,
    Sample as Sample,
    SummaryRow as SummaryRow,
    SystemTimes as SystemTimes,
)
from ._document import document as document
from ._gather import (
    attribute_shares as attribute_shares,
    structure_distributions as structure_distributions,
    summary_rows as summary_rows,
)
from ._page import (
    plain as plain,
    require_replaceable_report as require_replaceable_report,
    write_report as write_report,
)
