"""Network bytes of a run, read from its log, and checks of the counters."""

from collections.abc import Iterator
from dataclasses import dataclass

from hpcbench.collect.run_log import RunLog
from hpcbench.contract.text import make_printable
from hpcbench.features.network import events
from hpcbench.report.checks.relations import CheckedRun

_LARGEST = 1 << 62


@dataclass(frozen=True)
class CountedBytes:
    """Network bytes of the counted steps, measured with the counters of all nodes."""

    sent: int
    uncertain: int
    """Bytes that may belong to other steps."""
    whole_run: int | None
    """Bytes sent during the whole run of a program, or None for the engine's own runs."""
    nvlink: int | None
    """Bytes sent by all GPUs over NVLink, or None on systems without NVLink."""
    steps: int
    nodes: int

    @property
    def per_step_and_node(self) -> float:
        """Mean bytes sent per step and node."""
        return self.sent / self.steps / self.nodes

    @property
    def nvlink_per_step_and_node(self) -> float | None:
        """Mean bytes sent over NVLink per step and node, or None on systems without NVLink."""
        return None if self.nvlink is None else self.nvlink / self.steps / self.nodes


def read_bytes(log: RunLog) -> CountedBytes | None:
    """Read the ``network`` event of a run. Return None if the event contains no sum."""
    event = log.read_event(events.NetworkBytes)
    if event.from_step is None or event.to_step is None or event.sent_bytes is None or not event.nodes:
        return None
    steps = event.to_step - event.from_step + 1
    if steps < 1 or event.nodes < 1 or not 0 <= event.sent_bytes < _LARGEST:
        return None
    return CountedBytes(
        sent=event.sent_bytes,
        uncertain=event.uncertain_bytes or 0,
        whole_run=event.whole_sent_bytes,
        nvlink=event.nvlink_bytes if 0 <= (event.nvlink_bytes or 0) < _LARGEST else None,
        steps=steps,
        nodes=event.nodes,
    )


def check(subject: CheckedRun) -> Iterator[str]:
    """Yield a note if the network bytes of a run cannot be summed."""
    event = subject.log.event(events.NetworkBytes)
    if event is not None and event.sent_bytes is None and event.problems:
        yield f"network: {make_printable(event.problems[0])}"
