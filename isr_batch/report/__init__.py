"""Write HTML pages: the report of a lake (`report`), sweeps, and the evidence in server.log."""

from isr_batch.report.page import write_report

__all__ = ["write_report"]
