"""Parser for lines of a run's log: steps, events, and output of other programs."""

from hpcbench.contract import events, step_line
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.events import Event
from hpcbench.contract.step_line import Step


def parse(text: str, line: int) -> Step | Event | DamagedLine | None:
    """Parse a line.

    Returns
    -------
    Step, Event, DamagedLine or None
        None if the line was printed by the launcher, the MPI library or the interpreter. A `DamagedLine` if a line of
        hpcbench is incomplete.
    """
    text = text.rstrip()
    return events.parse_event(text, line) if text.startswith(events.BEGIN) else step_line.parse_step(text, line)
