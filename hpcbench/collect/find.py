"""Where a submission lies, and how its jobs stand."""

import sys
from collections.abc import Mapping
from pathlib import Path

from hpcbench.collect.state import JobState
from hpcbench.collect.submission import is_submission
from hpcbench.errors import UserError


def resolve(path: Path) -> Path:
    """The submission that `path` names: itself, or the newest of those numbered in it, which is told on stderr.

    Raises
    ------
    UserError
        There is none.
    """
    if is_submission(path):
        return path
    try:
        numbered = [entry for entry in path.iterdir() if entry.name.isdecimal() and is_submission(entry)]
    except NotADirectoryError:
        raise UserError(f"{path}: not a directory of results: give one made by 'hpcbench submit'") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such directory: give one made by 'hpcbench submit'") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if not numbered:
        raise UserError(f"{path}: no submission.json in it, nor in a numbered directory: give one made by 'submit'")
    newest = max(numbered, key=lambda entry: int(entry.name))
    print(f"hpcbench: {newest} is the newest of {len(numbered)} in {path}", file=sys.stderr)
    return newest


def job_states(root: Path) -> Mapping[str, JobState]:
    """State of each job by its id."""
    return {}
