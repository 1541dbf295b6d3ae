"""Write the HTML report of a lake (`report`), and the pages of sweeps and of server.log evidence."""

from isr_batch.report.page import write_report

__all__ = ["write_report"]
