"""Write HTML pages: the report on a lake, the page of a sweep, and the page with the evidence in server.log."""

from isr_batch.report.page import write_report

__all__ = ["write_report"]
