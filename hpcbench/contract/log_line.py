"""Parser for a line of a run's log: a step, an event, or the output of another program."""

from hpcbench.contract import events, step_line
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.events import Event
from hpcbench.contract.step_line import Step


def parse(text: str, line: int) -> Step | Event | DamagedLine | None:
    """Parse a line.

    Parameters
    ----------
    text
        The line without its line end.
    line
        Number of the line, from 1.

    Returns
    -------
    Step, Event, DamagedLine or None
        None for a line of the launcher, the MPI library or the interpreter. A `DamagedLine` for an incomplete line of
        hpcbench.
    """
    text = text.rstrip()
    return events.parse_event(text, line) if text.startswith(events.BEGIN) else step_line.parse_step(text, line)
