"""One finding of the doctor's: what was looked at, how it is, and what to do."""

from dataclasses import dataclass
from enum import Enum


class Health(str, Enum):
    """How something is. Unknown is a state of its own, and no success."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Check:
    """One line of the doctor's."""

    name: str
    health: Health
    fact: str
    """What was found."""
    remedy: str = ""
    """What to do, where it is not ok."""
    needed: bool = False
    """Whether the site cannot do without."""

    @property
    def failed(self) -> bool:
        """Whether something that is needed is not known to work."""
        return self.needed and self.health is not Health.OK


def found(name: str, fact: str, *, needed: bool = False) -> Check:
    """It is there and works."""
    return Check(name, Health.OK, fact, needed=needed)


def missing(name: str, fact: str, remedy: str = "", *, needed: bool = False) -> Check:
    """It is not there, or does not work."""
    return Check(name, Health.MISSING, fact, remedy, needed)


def unknown(name: str, fact: str, remedy: str = "", *, needed: bool = False) -> Check:
    """It could not be found out."""
    return Check(name, Health.UNKNOWN, fact, remedy, needed)
