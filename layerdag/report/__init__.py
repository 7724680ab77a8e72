"""HTML pages and JSON from results."""

from layerdag.report.content import Answer, ReportContent
from layerdag.report.gather import systems
from layerdag.report.page import write_report

__all__ = [
    "Answer",
    "ReportContent",
    "systems",
    "write_report",
]
