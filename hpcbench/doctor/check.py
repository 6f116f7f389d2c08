"""Result of a check: name, health, and remedy."""

from dataclasses import dataclass
from enum import Enum


class Health(str, Enum):
    """Health of a checked item. An unknown health is not a success."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Check:
    """A line of the doctor's output."""

    name: str
    health: Health
    fact: str
    """Human-readable finding."""
    remedy: str = ""
    """Remedy if the health is not ok."""
    needed: bool = False
    """Whether the site requires the checked item."""

    @property
    def failed(self) -> bool:
        """Whether the site requires the checked item, and the item's health is not OK."""
        return self.needed and self.health is not Health.OK


def report_ok(name: str, fact: str, *, needed: bool = False) -> Check:
    """Return a check of an item that exists and works."""
    return Check(name, Health.OK, fact, needed=needed)


def report_missing(name: str, fact: str, remedy: str = "", *, needed: bool = False) -> Check:
    """Return a check of an item that is missing or does not work."""
    return Check(name, Health.MISSING, fact, remedy, needed)


def report_unknown(name: str, fact: str, remedy: str = "", *, needed: bool = False) -> Check:
    """Return a check with an unknown result."""
    return Check(name, Health.UNKNOWN, fact, remedy, needed)
