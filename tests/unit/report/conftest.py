import pytest
from small_reports import small_report

from layerdag.report.content import ReportContent


@pytest.fixture(scope="session")
def content() -> ReportContent:
    """A report with every section; nothing in it can change, so that one serves all tests."""
    return small_report()
