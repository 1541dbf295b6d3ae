"""Write the HTML report: scope, mistakes of each rule, and how well the replay matches the brokers."""

from isr_batch.report.page import write_report

__all__ = ["write_report"]
