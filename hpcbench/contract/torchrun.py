"""torchrun's report about the process that failed first: a table below ``Root Cause``."""

import re
from dataclasses import dataclass, field

from hpcbench.contract.complaint import OutputLine

_FIELD = re.compile(r"(?P<name>time|host|rank|exitcode|traceback)\s*: (?P<value>.+)")
_SIGNAL = re.compile(r"Signal (?P<number>[0-9]{1,2}) \(SIG\w+\) received by PID [0-9]+")


@dataclass
class RootCause:
    """The tables of all agents of a run, one per node. Only the earliest failure is reported."""

    _tables: list[dict[str, OutputLine]] = field(default_factory=list)
    _open: bool = False

    def read(self, line: OutputLine) -> None:
        """Process a line."""
        if line.text.startswith("Root Cause"):
            self._open = True
            self._tables.append({})
        elif line.text.startswith("==="):
            self._open = False
        elif self._open and (matched := _FIELD.match(line.text)):
            self._tables[-1].setdefault(matched["name"], line)

    @property
    def ranks(self) -> list[str]:
        """Labels of the failed rank, in the format of `split_label`. Empty if torchrun does not report the rank."""
        numbers = re.findall(r"[0-9]+", self._value("rank"))
        return [f"{kind}{number}" for kind, number in zip(("rank", "local"), numbers, strict=False)]

    @property
    def signal(self) -> tuple[int, str, int] | None:
        """The signal that ended the process, its description, and the line, or None if the process exited by itself."""
        matched = _SIGNAL.search(self._value("traceback"))
        if matched is None:
            return None
        rank = self._value("rank").partition(" ")[0]
        return (
            int(matched["number"]),
            f"rank {rank} on {self._value('host')}: {matched[0]}",
            self._first["traceback"].number,
        )

    @property
    def _first(self) -> dict[str, OutputLine]:
        return min(self._tables, key=lambda table: table["time"].text if "time" in table else "~", default={})

    def _value(self, name: str) -> str:
        line = self._first.get(name)
        return line.text.partition(": ")[2].strip() if line else ""
