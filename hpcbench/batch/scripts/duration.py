"""Durations and their formats in each scheduler."""

import re
from dataclasses import dataclass

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WORDS = re.compile(r"(?:(\d{1,5})d)?\s*(?:(\d{1,6})h)?\s*(?:(\d{1,7})m(?:in)?)?\s*(?:(\d{1,8})s)?")
_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]?\d):([0-5]?\d)")
_BARE = re.compile(r"(\d{1,6}):(\d{1,6})")
_FORMS = "write it as 90m, 1h30m, 2d or h:mm:ss"
_SLURM_DAYS = re.compile(r"(\d{1,5})-(\d{1,4})(?::(\d{1,4}))?(?::(\d{1,4}))?")
_SLURM = re.compile(r"(?:(?:(\d{1,6}):)?(\d{1,8}):)?(\d{1,8})")
_LSF = re.compile(r"(?:(\d{1,6}):)?(\d{1,8})(?:\.\d+)?(?:\s*min)?(?:/.+|\s+of\s+.+)?")


@dataclass(frozen=True, order=True)
class Duration:
    """A positive time span in whole seconds."""

    seconds: int

    def __post_init__(self) -> None:
        if not isinstance(self.seconds, int) or self.seconds < 1:
            raise ValueError(f"a duration is a whole number of seconds above zero, not {self.seconds}")

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Parse ``90m``, ``1h30m``, ``2d``, ``45s``, ``h:mm:ss`` or ``d-hh:mm:ss``.

        Raises
        ------
        ValueError
            The format is not supported. The meaning of ``a:b`` and of bare numbers differs between schedulers.
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
        match = _CLOCK.fullmatch(text) or _WORDS.fullmatch(text)
        if not text or not match:
            raise ValueError(f"{text[:40]!r} is not a duration: {_FORMS}")
        return cls(sum(int(n or 0) * unit for n, unit in zip(match.groups(), _UNITS.values(), strict=True)))

    @classmethod
    def of_slurm(cls, text: str) -> "Duration | None":
        """Parse a time limit printed by Slurm: ``m``, ``m:s``, ``h:m:s``, ``d-h``, ``d-h:m`` or ``d-h:m:s``.

        Returns
        -------
        Duration | None
            The result is None for a time without a limit: ``infinite``, ``UNLIMITED``, ``n/a``.

        Raises
        ------
        ValueError
            The text is not a Slurm time limit.
        """
        text = text.strip()
        if text.lower() in ("infinite", "unlimited", "n/a"):
            return None
        match = _SLURM_DAYS.fullmatch(text)
        if match:
            numbers = [int(n or 0) for n in match.groups()]
        else:
            match = _SLURM.fullmatch(text)
            if not match:
                raise ValueError(f"{text[:40]!r} is not a time limit of Slurm")
            hours, minutes, last = match.groups()
            numbers = (
                [0, int(hours or 0), int(last), 0] if minutes is None else [0, int(hours or 0), int(minutes), int(last)]
            )
        return cls(sum(n * unit for n, unit in zip(numbers, _UNITS.values(), strict=True)))

    @classmethod
    def of_lsf(cls, text: str) -> "Duration":
        """Parse an LSF run limit: ``90``, ``1:30`` or ``90.0 min``, optionally followed by a host."""
        match = _LSF.fullmatch(text.strip())
        if not match:
            raise ValueError(f"{text[:40]!r} is not a run limit of LSF")
        return cls(60 * (60 * int(match[1] or 0) + int(match[2])))

    def lsf(self) -> str:
        """Format as ``h:mm``, rounded up. LSF reads ``[hours:]minutes``."""
        minutes = -(-self.seconds // 60)
        return f"{minutes // 60}:{minutes % 60:02d}"

    def slurm(self) -> str:
        """Format as ``hh:mm:ss``, or as ``d-hh:mm:ss`` for one day or more."""
        days, seconds = divmod(self.seconds, 86400)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        return f"{days}-{clock}" if days else clock

    def flux(self) -> str:
        """Format as seconds with a unit. Flux would read a bare number as minutes."""
        return f"{self.seconds}s"

    def __str__(self) -> str:
        days, seconds = divmod(self.seconds, 86400)
        parts = {"d": days, "h": seconds // 3600, "m": seconds // 60 % 60, "s": seconds % 60}
        return "".join(f"{number}{unit}" for unit, number in parts.items() if number)
