"""One self-contained page: what was analysed, what each rule got wrong, and how well the replay matches the brokers."""

from isr_batch.report.page import write_report

__all__ = ["write_report"]
