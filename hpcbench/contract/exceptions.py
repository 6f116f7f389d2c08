"""Python exceptions in a run's output: the exception of the rank that failed first, and its consequences."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from hpcbench.contract.complaint import OutputLine

_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*(?:[A-Za-z_]\w*)?(?:Error|Exception|Interrupt|Exit)(?:: .*)?")
_CHAIN = re.compile(r"During handling of the above exception|The above exception was the direct cause")
_IGNORED = re.compile(r"Exception ignored in")
_VICTIM = re.compile(
    r"(?:[\w.]*\.)?(?:KeyboardInterrupt|SystemExit|SignalException|ChildFailedError|BrokenPipeError|ConnectionResetError)\b"
    r"|.*(?:connection (?:was )?(?:closed|reset|aborted|lost)|broken pipe|closed by peer|reset by peer|socket closed"
    r"|pair closure|gloo/transport|(?:remote|peer|other|another) (?:process|rank|end)s?\b|recvvalue failed"
    r"|communicator (?:was|is) aborted|ncclremoteerror|heartbeat|watchdog|timed out|proc_failed"
    r"|see the mpi_error field|other mpi error)",
    re.IGNORECASE,
)
"""Exceptions of a rank that lost its connection to another rank, or received a request to end."""


@dataclass
class Exceptions:
    """Incremental search for exceptions in a file."""

    _lines: list[OutputLine] = field(default_factory=list)
    _ignored: set[str] = field(default_factory=set)

    def read(self, line: OutputLine) -> None:
        """Process a line."""
        if _IGNORED.match(line.text):
            self._ignored.add(line.source)
        elif _CHAIN.match(line.text):  # the next exception ended the rank
            last = next((before for before in reversed(self._lines) if before.source == line.source), None)
            if last:
                self._lines.remove(last)
        elif _EXCEPTION.fullmatch(line.text):
            if line.source in self._ignored:
                self._ignored.remove(line.source)
            else:
                self._lines.append(line)

    def cause(self, ranks: Collection[str] = ()) -> OutputLine | None:
        """Return the exception of the rank that failed first, or None if the output contains only consequences.

        Parameters
        ----------
        ranks
            Labels of the rank that failed first, if the launcher reports it.
        """
        causes = [line for line in self._lines if not _VICTIM.match(line.text)]
        # The last exception of a rank ended it. Without labels the ranks cannot be distinguished, so all lines count.
        last = {line.source or line.number: line for line in causes}
        named = [line for line in last.values() if line.source in ranks]
        return min(named or last.values(), key=lambda line: line.number, default=None)

    def victim(self) -> OutputLine | None:
        """Return the first exception caused by the failure of another rank."""
        return next((line for line in self._lines if _VICTIM.match(line.text)), None)
