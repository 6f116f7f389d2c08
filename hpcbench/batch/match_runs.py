"""Which runs an expression of `--only` names."""

import fnmatch
from collections.abc import Mapping
from typing import Any

from hpcbench.contract.problems import show, suggest
from hpcbench.errors import UserError


def matching(runs: Mapping[str, Mapping[str, Any]], only: str) -> set[str]:
    """Ids of the runs that an expression names.

    Parameters
    ----------
    runs
        Scheme, repeat and the values of the matrix of each run, by its id.
    only
        Comma-separated parts, all of which must hold: ``key=value`` for ``scheme``, ``repeat`` or a key of the matrix;
        a part without ``=`` is for the run's id. Values and ids are patterns with ``*`` and ``?``, several of them with
        ``|`` between.

    Raises
    ------
    UserError
        A key is unknown, or no run is left.
    """
    kept = dict(runs)
    first, cell = next(iter(runs.items()))
    keys: list[str] = []
    for part in only.split(","):
        key, equals, patterns = (word.strip() for word in part.partition("="))
        if equals and key not in cell:
            known = list(cell)
            raise UserError(f"--only {show(part)}: unknown key{suggest(key, known)}: known are {', '.join(known)}")
        keys += [key] if equals else []
        kept = {
            id: values
            for id, values in kept.items()
            if _fits(_text(values[key]) if equals else id, patterns if equals else key)
        }
    if not kept:
        twice = next((key for key in keys if keys.count(key) > 1), None)
        remedy = f"all parts must hold: write {twice}=a|b for either" if twice else f"ids are such as {first}"
        raise UserError(f"--only {show(only)}: names no run: {remedy}")
    return set(kept)


def _fits(text: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern.strip()) for pattern in patterns.split("|"))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
