"""Recognition of files that users give instead of a log: exports, stored reports, plans, and compressed files."""

from pathlib import Path

from hpcbench.contract.text import make_printable
from hpcbench.contract.values import get_text
from hpcbench.files import decompression, read_json

_EXPORTS = (b"SQLite format 3\0", b"PAR1", b"schema_version,", b'{"schema_version": ')
"""First bytes of the files of `hpcbench report --export`."""


def describe_other_file(path: Path) -> str | None:
    """Return what a file is, and what to give instead of this file. The result is None for other kinds of files."""
    if command := decompression(path):
        return f"is compressed: decompress the file with {command}, and give the result"
    with path.open("rb") as stream:
        head = stream.read(32)
    if head.startswith(_EXPORTS):
        return "is an export: give the submission that was exported, or compare exports with `hpcbench history`"
    document = read_json(path)
    if document is None:
        return None
    if isinstance(reported := document.get("submissions"), list):
        roots = [get_text(each, "root") for each in reported]
        names = ", ".join(make_printable(root) for root in roots if root) or "the logs"
        return f"is a stored report: for a new report of the same runs, give {names} instead"
    if {"jobs", "runs"} <= document.keys():
        return f"is the plan of a submission: give its directory, {make_printable(str(path.parent))}"
    return "is a JSON file, but not a log of a run: give a submission's directory, or a log"
