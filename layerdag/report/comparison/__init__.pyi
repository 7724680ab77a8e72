from ._page import (
    comparison_figures as comparison_figures,
    require_replaceable_comparison as require_replaceable_comparison,
    write_comparison as write_comparison,
)
from ._reading import ReportedRun as ReportedRun, read_reports as read_reports
