"""An event of a run's log: a line with one JSON object, whose first key is ``event``."""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.event.part import LogObject
from hpcbench.contract.values import get_text

BEGIN = '{"event": '
"""Text at the beginning of every event's line."""
E = TypeVar("E", bound="Event")


@dataclass(frozen=True, kw_only=True)
class Event(LogObject):
    """An event of the log. `hpcbench.contract.events` has a subclass for each event that a run writes.

    Events are not pydantic models: if one value of a line is invalid, the other values are still used. Pydantic
    validators with this behavior are not faster (29 ms to build, 11 us per line) and save only 25 lines.
    """

    NAME: ClassVar[str]
    """The value of the line's first key."""
    line: int = field(default=0, compare=False, metadata={"key": False})
    """Line number of the event in its log, starting at 1, or 0 if the event was not read from a log."""

    @property
    def name(self) -> str:
        """The event's name, as it is written in the line."""
        return self.NAME

    @classmethod
    def begin(cls) -> str:
        """Return the text that lines of this event begin with."""
        return f"{BEGIN}{json.dumps(cls.NAME)}"

    def to_line(self) -> str:
        """Return the event's line, without its line end."""
        return json.dumps({"event": self.NAME, **self.to_json()})

    @classmethod
    def from_line(cls: type[E], text: str, line: int = 0) -> E | None:
        """Read the event from a line of a log. Return None if the line is truncated or contains another event."""
        data = parse_object(text, line)
        return cls.read(data, line=line) if isinstance(data, dict) and data["event"] == cls.NAME else None


def parse_object(text: str, line: int) -> dict[str, Any] | DamagedLine:
    """Parse the object in an event's line, which must have a name."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return DamagedLine(line, "an event is truncated")
    if not isinstance(data, dict) or get_text(data, "event") is None:
        return DamagedLine(line, "an event has no name")
    return data
