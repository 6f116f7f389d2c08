"""Reader of logs of any framework: detects the framework and reads its lines into a `RunLog`."""

from pathlib import Path

from hpcbench.collect import run_log
from hpcbench.collect.dialects.dialect import Dialect
from hpcbench.collect.dialects.reader import DialectReader
from hpcbench.collect.dialects.table import DIALECTS
from hpcbench.collect.dialects.texts import texts
from hpcbench.collect.run_log import RunLog
from hpcbench.contract.damaged_line import DamagedLine
from hpcbench.contract.events import Start
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError


def read(path: Path) -> RunLog:
    """Read a log of any framework.

    A log that contains lines of hpcbench is read as a log of hpcbench. Any other log is read as a log of the framework
    with the most step lines. An engine that other frameworks are based on is chosen only if the log contains no step
    lines of these frameworks. For an unknown framework, the result has no steps.

    Raises
    ------
    UserError
        The file is missing, a directory, or cannot be read.
    """
    log = run_log.read(path)
    if log.steps or log.event(Start):
        return log
    try:
        counts = _claims(path)
        if not counts:
            return log
        dialect = max(counts, key=lambda dialect: counts[dialect])
        reader = DialectReader(path, dialect)
        if len(counts) > 1 and not dialect.engine:
            others = ", ".join(f"{count} of {other.name}" for other, count in counts.items() if other is not dialect)
            reader.log.note(
                DamagedLine(
                    1,
                    f"read as a log of {dialect.name} ({counts[dialect]} lines); lines of other frameworks: {others}",
                )
            )
        with path.open("rb") as stream:
            for text in texts(stream):
                reader.feed(text)
    except OSError as error:
        raise UserError(f"{make_printable(str(path))}: cannot be read: {error.strerror}") from None
    return reader.close()


def _claims(path: Path) -> dict[Dialect, int]:
    """Count the step lines of each dialect in the file.

    If several dialects match a line, the line belongs to the first dialect.
    """
    counts: dict[Dialect, int] = {}
    with path.open("rb") as stream:
        for text in texts(stream):
            if text.text is None:
                continue
            dialect = next((dialect for dialect in DIALECTS if dialect.probes(text.text)), None)
            if dialect:
                counts[dialect] = counts.get(dialect, 0) + 1
    others = {dialect: count for dialect, count in counts.items() if not dialect.engine}
    return others or counts
