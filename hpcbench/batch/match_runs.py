"""Selection of runs with ``--only`` expressions."""

import fnmatch
from collections.abc import Mapping
from typing import Any

from hpcbench.contract.problems import show, suggest
from hpcbench.errors import UserError


def matching(runs: Mapping[str, Mapping[str, Any]], only: str) -> set[str]:
    """Return the ids of all runs that match an expression.

    Parameters
    ----------
    runs
        Scheme, repeat and matrix values of each run, keyed by run id.
    only
        Comma-separated conditions that must all hold: ``key=value`` for ``scheme``, ``repeat`` or a matrix key. A
        condition without ``=`` applies to the run id. Values and ids are patterns with ``*`` and ``?``. ``|``
        separates alternatives.

    Raises
    ------
    UserError
        A key is unknown, or no run matches.
    """
    matches = dict(runs)
    first, cell = next(iter(runs.items()))
    keys: list[str] = []
    for part in only.split(","):
        key, equals, patterns = (word.strip() for word in part.partition("="))
        if equals and key not in cell:
            valid = list(cell)
            raise UserError(f"--only {show(part)}: unknown key{suggest(key, valid)}: use one of {', '.join(valid)}")
        keys += [key] if equals else []
        matches = {
            id: values
            for id, values in matches.items()
            if _fits(_text(values[key]) if equals else id, patterns if equals else key)
        }
    if not matches:
        twice = next((key for key in keys if keys.count(key) > 1), None)
        either = f"no run can match two conditions on {twice}: write {twice}=a|b to match either value"
        remedy = either if twice else f"run ids look like {first}"
        raise UserError(f"--only {show(only)}: matches no run: {remedy}")
    return set(matches)


def _fits(text: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern.strip()) for pattern in patterns.split("|"))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
