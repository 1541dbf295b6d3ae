"""Classify log lines by kind of log, using the line's logger and message rather than the name of its file."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.request_log.fields import MARK

REQUEST, SERVER, STATE_CHANGE, METADATA, GC = "request", "server", "state-change", "metadata", "gc"
KINDS = (REQUEST, SERVER, STATE_CHANGE, METADATA, GC)
BROKER_KINDS = KINDS[:3]
"""The kinds of log that can be mixed in one file, as in a container's output. A line's code is an index into this
tuple."""

Codes = npt.NDArray[np.int8]
_REQUEST, _SERVER, _STATE_CHANGE = range(3)
_NO_CODE = -1
_STAMPED = r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:"
_LOGGER = r" \([A-Za-z_$][\w$]*(?:\.[\w$]+)+\)\s*$"
_ABOUT_STATE = r"^\[[^\]]*\] [A-Z]+ (?:\[(?:Broker|Controller) id=\d+[^\]]*\]|Broker \d+ |Controller \d+ epoch )"
_MARK_AT = len("[2026-11-21 16:30:18,595] DEBUG")
_REQUEST_MARK, _STATE_MARK = MARK.decode(), "(state.change.logger)"


class LogKindFinder:
    """Classifies the lines of one file by kind of log. A line without a timestamp gets the kind of the line before it.

    Parameters
    ----------
    default : str
        Kind of log that the file's name suggests. Lines that show no kind get this one.
    """

    def __init__(self, default: str) -> None:
        self.default = BROKER_KINDS.index(default)
        self.last = self.default

    def all_requests(self, block: bytes) -> Codes | None:
        """Do the same as `codes`, but faster, if all lines in ``block`` are requests; otherwise return None."""
        from udfs.request_log.cut import count_requests  # imports numba, which `look` does not need

        lines = count_requests(np.frombuffer(block, np.uint8), _MARK_AT)
        if lines < 0:
            return None
        self.last = _REQUEST
        return np.full(lines, _REQUEST, np.int8)

    def codes(self, values: pa.StringArray) -> Codes:
        """Return a numpy array with a code for each line: its kind of log, as an index into `BROKER_KINDS`.

        Parameters
        ----------
        values : string array
            Lines in Kafka's own layout, in the order of the file.
        """
        if not len(values):
            return np.empty(0, np.int8)
        request = _lines_matching(pc.match_substring(values, _REQUEST_MARK))
        if request.all():
            self.last = _REQUEST
            return np.full(len(values), _REQUEST, np.int8)
        others = values.filter(pa.array(~request))
        codes = np.full(len(values), _REQUEST, np.int8)
        codes[~request] = self._of_others(others)
        own = codes != _NO_CODE
        before = np.maximum.accumulate(np.where(own, np.arange(len(codes)), -1))
        codes = np.where(before >= 0, codes[np.maximum(before, 0)], self.last).astype(np.int8)
        self.last = int(codes[-1])
        return codes

    def _of_others(self, values: pa.StringArray) -> Codes:
        """Return a code for each line that is not a request. Lines without a timestamp get `_NO_CODE`."""
        stamped = _lines_matching(pc.match_substring_regex(values, _STAMPED))
        state = _lines_matching(pc.match_substring(values, _STATE_MARK))
        asked = _lines_matching(pc.match_substring(values, "(kafka.request.logger)"))
        named = _lines_matching(pc.match_substring_regex(values, _LOGGER))
        unnamed = self.default
        if self.default == _SERVER:
            state |= ~named & _lines_matching(pc.match_substring_regex(values, _ABOUT_STATE))
        codes = np.where(state, _STATE_CHANGE, np.where(asked, _REQUEST, np.where(named, _SERVER, unnamed)))
        return np.where(stamped, codes, _NO_CODE).astype(np.int8)


def _lines_matching(found: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Convert the result of an Arrow match to a numpy mask. Null becomes false."""
    return np.asarray(pc.fill_null(found, False))
