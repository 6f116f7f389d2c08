"""Reads any log into a `RunLog`: finds out which framework wrote it, and reads its lines."""

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

    A log with lines of hpcbench is hpcbench's. Otherwise it belongs to the framework with the most step lines in it. It
    belongs to an engine that other frameworks are built on only if it has no line of theirs. A log of an unknown
    framework comes back without steps.

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
                DamagedLine(1, f"read as a log of {dialect.name}, by {counts[dialect]} lines; there are also {others}")
            )
        with path.open("rb") as stream:
            for text in texts(stream):
                reader.feed(text)
    except OSError as error:
        raise UserError(f"{make_printable(str(path))}: cannot be read: {error.strerror}") from None
    return reader.close()


def _claims(path: Path) -> dict[Dialect, int]:
    """Count the lines of the file that each dialect takes for its step lines.

    A line belongs to the first such dialect.
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
