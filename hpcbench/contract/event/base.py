"""An event of a run's log: one JSON object a line, whose first key is ``event``."""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from hpcbench.contract.cut import Cut
from hpcbench.contract.event.part import Part
from hpcbench.contract.values import text

BEGIN = '{"event": '
"""How each event's line begins."""
E = TypeVar("E", bound="Event")


@dataclass(frozen=True, kw_only=True)
class Event(Part):
    """An event. `hpcbench.contract.events` has a subclass for each that a run writes."""

    NAME: ClassVar[str]
    """The value of the line's first key."""
    line: int = field(default=0, compare=False, metadata={"key": False})
    """Where it stands in the log that it was read from, counted from 1; 0 if it was not read from a log."""

    @property
    def name(self) -> str:
        """Which event it is, as the line says it."""
        return self.NAME

    @classmethod
    def begin(cls) -> str:
        """How the lines of this event begin."""
        return f"{BEGIN}{json.dumps(cls.NAME)}"

    def to_line(self) -> str:
        """The event's line, without its line end."""
        return json.dumps({"event": self.NAME, **self.to_json()})

    @classmethod
    def from_line(cls: type[E], words: str, line: int = 0) -> E | None:
        """The event in a line of a log; None where the line is not whole, or is of another event."""
        data = parsed(words, line)
        return cls.read(data, line=line) if isinstance(data, dict) and data["event"] == cls.NAME else None


def parsed(words: str, line: int) -> dict[str, Any] | Cut:
    """The object in an event's line, which has a name."""
    try:
        data = json.loads(words)
    except (ValueError, RecursionError):
        return Cut(line, "an event was cut")
    if not isinstance(data, dict) or text(data, "event") is None:
        return Cut(line, "an event has no name")
    return data
