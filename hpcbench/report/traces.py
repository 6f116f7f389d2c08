"""``hpcbench report --trace``: the ranks of each traced run on one clock, in a file that Perfetto opens."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcbench.collect.submission import Submission
from hpcbench.collect.traces import traces_of
from hpcbench.contract.text import printable
from hpcbench.contract.trace import merged
from hpcbench.errors import UserError


def write(submissions: Sequence[Submission], directory: Path) -> list[Path]:
    """Write ``RUN.json`` for each run that has a trace, and say on standard error what it holds.

    Raises
    ------
    UserError
        No run has a trace, or a file cannot be read or written.
    """
    written: list[Path] = []
    for run in (run for submission in submissions for run in submission.runs):
        traces = traces_of(run)
        if not traces:
            continue
        joined = merged(traces)
        path = directory / f"{run.id}.json"
        if path in written:
            path = directory / f"{run.id}-{len(written)}.json"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(joined, separators=(",", ":")), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--trace {printable(str(path))}: cannot be written: {error.strerror}") from None
        written.append(path)
        print(f"hpcbench: {path}: {_said(joined['otherData'])}", file=sys.stderr)
    if not written:
        raise UserError(
            "--trace: no run has a trace: set train.trace in the study, such as `trace: {steps: [20, 25]}`, and run it"
        )
    return written


def _said(about: dict[str, float]) -> str:
    ranks, lost = about["ranks"], about["left_out"]
    words = f"{ranks} rank{'s' * (ranks > 1)} on one clock, to {about['clock_error_us']:.0f} us"
    return f"{words}; {lost} spans were left out: trace fewer steps" if lost else words
