"""The only device."""

from cupy.cuda.errors import invalid
from cupy.cuda.stream import LOCK, drain_all


class Device:
    """Device 0, which has few multiprocessors, so that each block runs in several passes."""

    compute_capability = "90"

    def __init__(self, number: int | None = None) -> None:
        if number not in (None, 0):
            raise invalid(f"device {number} does not exist")
        self.id = 0
        self.attributes = {"MultiProcessorCount": 1}

    def synchronize(self) -> None:
        with LOCK:
            drain_all()
