"""Write HTML pages: the report on a lake, the results of a sweep (many parameter sets), the evidence in server.log."""

from isr_batch.report.page import write_report

__all__ = ["write_report"]
