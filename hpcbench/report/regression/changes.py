"""What changed between two submissions, scheme by scheme.

They ran at different times, perhaps on different nodes, so that their speeds are compared as independent samples (Welch).
Their losses are compared pair by pair where the repeats had equal seeds, for then both saw the same text in the same
order, and as independent samples where not.
"""

from dataclasses import dataclass
from typing import Any, Literal

from hpcbench.report.compare import Row
from hpcbench.report.statistics.intervals import Test

Word = Literal["up", "down", "same", "not shown"]
Fate = Literal["compared", "broken", "mended", "missing", "new", "never completed"]

ALPHA = 0.05
COMPARED = ("model", "data", "train", "layout", "ranks", "device", "threads")
"""Settings that should be equal for a comparison to speak of the code and the machine alone."""


@dataclass(frozen=True)
class Change:
    """A scheme of a cell, then and now."""

    cell: dict[str, Any]
    scheme: str
    old: Row | None
    new: Row | None
    fate: Fate
    speed: Test | None
    """Of the ratio of samples/s, new over old."""
    loss: Test | None
    """Of the difference of validation losses, new minus old."""
    speed_word: Word
    loss_word: Word

    @property
    def bad(self) -> bool:
        """Whether something that worked got slower or worse, broke, or is missing."""
        return self.fate in ("broken", "missing") or self.speed_word == "down" or self.loss_word == "up"

    @property
    def verdict(self) -> str:
        """In words."""
        if self.fate != "compared":
            return {"broken": f"broken: {self.new.verdict if self.new else ''}"}.get(self.fate, self.fate)
        speed = {"up": "faster", "down": "slower", "same": "as fast", "not shown": ""}[self.speed_word]
        loss = {"up": "worse loss", "down": "better loss", "same": "equal loss", "not shown": ""}[self.loss_word]
        known = ", ".join(filter(None, (speed, loss)))
        if not speed or not loss:
            open_ = " and ".join(name for name, word in (("speed", speed), ("loss", loss)) if not word)
            return f"{known}; {open_} not shown" if known else "not shown (too few repeats)"
        return known
