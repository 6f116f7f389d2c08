"""Comparison of one scheme with another."""

from dataclasses import dataclass

from hpcbench.report.findings import LossFinding, SpeedFinding


@dataclass(frozen=True)
class Duel:
    """A comparison of two schemes, based on pairs of runs."""

    scheme: str
    other: str
    speed: SpeedFinding | None
    """Speed of the scheme divided by the speed of the other scheme, or None if no pair exists."""
    loss: LossFinding | None
    """Loss of the scheme minus the loss of the other scheme, or None if no pair has both losses."""

    @property
    def beats(self) -> bool:
        """Whether the scheme is significantly better in speed or loss, and is no worse in the other quantity."""
        if self.speed is None or self.loss is None:
            return False
        if self.speed.shown == "faster":
            return self.loss.shown in ("no worse", "better")
        return self.loss.shown == "better" and self.speed.as_fast

    @property
    def faster(self) -> bool:
        """Whether the scheme is significantly faster."""
        return self.speed is not None and self.speed.shown == "faster"

    def turn(self) -> "Duel":
        """Return the comparison from the perspective of the other scheme."""
        speed = self.speed.turn() if self.speed else None
        return Duel(self.other, self.scheme, speed, self.loss.turn() if self.loss else None)
