"""From any log to a `RunLog`: whose lines a file holds, and what they say."""

from pathlib import Path

from hpcbench.collect import run_log
from hpcbench.collect.dialects.dialect import Dialect
from hpcbench.collect.dialects.reader import Reader
from hpcbench.collect.dialects.table import DIALECTS
from hpcbench.collect.dialects.texts import texts
from hpcbench.collect.run_log import RunLog
from hpcbench.contract.cut import Cut
from hpcbench.contract.events import Start
from hpcbench.contract.text import printable
from hpcbench.errors import UserError


def read(path: Path) -> RunLog:
    """Read a log, whoever wrote it.

    Our own lines win. Without any, it is a log of the framework most of whose step lines it holds; of an engine that
    others are built on, only where none of theirs are there. A log of nobody's comes back without steps.

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
        reader = Reader(path, dialect)
        if len(counts) > 1:
            others = ", ".join(f"{count} of {other.name}" for other, count in counts.items() if other is not dialect)
            reader.log.note(
                Cut(1, f"read as a log of {dialect.name}, by {counts[dialect]} lines; there are also {others}")
            )
        with path.open("rb") as stream:
            for text in texts(stream):
                reader.feed(text)
    except OSError as error:
        raise UserError(f"{printable(str(path))}: cannot be read: {error.strerror}") from None
    return reader.close()


def _claims(path: Path) -> dict[Dialect, int]:
    """How many lines of the file each dialect takes for step lines of its own; a line is the first one's."""
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
