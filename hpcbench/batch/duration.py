"""One duration, and one way to write it for each scheduler."""

import re
from dataclasses import dataclass

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WORDS = re.compile(r"(?:(\d{1,5})d)?\s*(?:(\d{1,6})h)?\s*(?:(\d{1,7})m(?:in)?)?\s*(?:(\d{1,8})s)?")
_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]?\d):([0-5]?\d)")
_BARE = re.compile(r"(\d{1,6}):(\d{1,6})")
_FORMS = "write it as 90m, 1h30m, 2d or h:mm:ss"


@dataclass(frozen=True, order=True)
class Duration:
    """A time span in whole seconds, above zero."""

    seconds: int

    def __post_init__(self) -> None:
        if self.seconds < 1:
            raise ValueError(f"a duration must be above zero, not {self.seconds} s")

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Read ``90m``, ``1h30m``, ``2d``, ``45s``, ``h:mm:ss`` or ``d-hh:mm:ss``.

        Raises
        ------
        ValueError
            The text is something else; ``a:b`` and bare numbers mean different things to different schedulers.
        """
        text = text.strip()
        bare = _BARE.fullmatch(text)
        if bare:
            a, b = bare.groups()
            raise ValueError(
                f"{text} may mean {a} hours {b} minutes (LSF) or {a} minutes {b} seconds (Slurm): {_FORMS}"
            )
        if text.isdigit():
            raise ValueError(f"{text} has no unit: write {text}m for minutes or {text}s for seconds")
        clock, words = _CLOCK.fullmatch(text), _WORDS.fullmatch(text)
        if not text or not (clock or words):
            raise ValueError(f"{text[:40]!r} is no duration: {_FORMS}")
        numbers = (clock or words).groups()  # type: ignore[union-attr]
        return cls(sum(int(n or 0) * unit for n, unit in zip(numbers, _UNITS.values(), strict=True)))

    def lsf(self) -> str:
        """``h:mm``, rounded up: LSF reads ``[hours:]minutes``."""
        minutes = -(-self.seconds // 60)
        return f"{minutes // 60}:{minutes % 60:02d}"

    def slurm(self) -> str:
        """``hh:mm:ss``, or ``d-hh:mm:ss`` from one day on."""
        days, rest = divmod(self.seconds, 86400)
        clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
        return f"{days}-{clock}" if days else clock

    def __str__(self) -> str:
        days, rest = divmod(self.seconds, 86400)
        parts = {"d": days, "h": rest // 3600, "m": rest // 60 % 60, "s": rest % 60}
        return "".join(f"{number}{unit}" for unit, number in parts.items() if number)
