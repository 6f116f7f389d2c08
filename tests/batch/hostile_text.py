"""Hostile texts, and functions that place such texts in documents."""

import copy
import json
from collections.abc import Iterator
from typing import Any

Keys = tuple[str | int, ...]

HOSTILE = [
    " ",
    "a b",
    "'; touch pwned; '",
    '"a"; touch pwned',
    "$(touch pwned)",
    "`touch pwned`",
    "a\ntouch pwned",
    "a\r\n#SBATCH --qos=pwned",
    "a\x00b",
    "%j %J %a {{id}}",
    "{{ 7 * 7 }}{% raw %}",
    "-n 4",
    "--skip-preview-namelist",
    "ƒ ünï 漢字 \u2028 \x85",
    "x" * 300,
    "..",
    "../../pwned",
    "x[1-5]",
    "crazy|name > pwned",
    "(k) & touch pwned &",
    "#SBATCH -q x",
    "#BSUB -q x",
    "",
    "*",
    "~",
    "$HOME ${PATH}",
    "!! \\",
    "a\\",
]


def texts(data: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Yield the paths of all texts of a document. A path that ends in `+` refers to a user-chosen key."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from texts(value, (*keys, key))
            if keys and keys[-1] in ("environment", "directives", "schemes", "queues", "matrix"):
                yield (*keys, key, "+")
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from texts(value, (*keys, index))
    elif isinstance(data, str) or data is None:
        yield keys


def changed(data: dict[str, Any], keys: Keys, text: str) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    place: Any = changed
    *path, last = keys[:-1] if keys[-1] == "+" else keys
    for key in path:
        place = place[key]
    if keys[-1] == "+":
        place[text] = place.pop(last)
    else:
        place[last] = text
    return changed


def yaml(data: Any) -> str:
    """Return JSON with unescaped characters beyond 16 bits, because YAML reads a surrogate pair as two characters."""
    escaped = (c if c.isascii() else f"\\U{ord(c):08x}" for c in json.dumps(data, ensure_ascii=False))
    return "".join(escaped)
