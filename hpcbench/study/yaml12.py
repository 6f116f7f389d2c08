"""YAML 1.2 with the place of every value: only what the core schema knows, and nothing that surprises.

`12:00` and `no` are strings, `1e3` is a number, `010` is ten. Duplicate keys, tags, several documents and alias bombs
are errors with file and line.
"""

import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from hpcbench.errors import UserError
from hpcbench.files import shown_path

Path_: TypeAlias = tuple[str | int, ...]
"""Where a value lies in a document: keys and list indices."""

MAX_BYTES = 1 << 20
MAX_NODES = 50_000
MAX_DEPTH = 32

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_OCT, _HEX = re.compile(r"0o[0-7]+"), re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {"inf": float("inf"), "Inf": float("inf"), "INF": float("inf")}


def shown(value: object, limit: int = 60) -> str:
    """A value of the user's as one short printable line."""
    text = repr(value) if isinstance(value, str) else str(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


@dataclass
class Document:
    """A YAML file's content, and where each value of it was said."""

    name: str
    """The file, as messages call it."""
    text: bytes
    """The file as it was read."""
    data: dict[str, Any]
    """Mappings, lists, strings, numbers, booleans and None."""
    origins: dict[Path_, str] = field(default_factory=dict)
    """``file:line`` (or the option) of each key and list item."""

    def where(self, path: Path_) -> str:
        """``file:line`` of the value, or of the nearest thing around it that the file says."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return self.name


def read(path: Path) -> Document:
    """Read a YAML file whose root is a mapping.

    Raises
    ------
    UserError
        The file cannot be read, is empty, too large, not text, not YAML 1.2, or not a mapping.
    """
    name = shown_path(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise UserError(f"{name}: is a directory: give the YAML file in it") from None
    except FileNotFoundError:
        raise UserError(f"{name}: no such file: check the path") from None
    except PermissionError:
        raise UserError(f"{name}: may not be read: check its permissions") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
        raise UserError(f"{name}: larger than {MAX_BYTES >> 20} MiB: is this the right file?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{name}:{line}: not UTF-8 text (byte {raw[error.start]:#04x}): is this the right file?"
        ) from None
    origins: dict[Path_, str] = {}
    data = _parse(text, name, origins)
    if data is None and not text.strip():
        raise UserError(f"{name}: is empty: see `hpcbench schema` for what belongs in it")
    if not isinstance(data, dict):
        found = {list: "a list", type(None): "nothing"}.get(type(data), shown(data))
        raise UserError(f"{name}:1: expected `key: value` lines at the root, found {found}")
    return Document(name, raw, data, origins)


def parse_value(text: str, name: str) -> Any:
    """A single YAML value, as `--set` takes it.

    Raises
    ------
    UserError
        The text is no YAML; the message calls it `name`.
    """
    return _parse(text, name, {}, lines=False)


def _parse(text: str, name: str, origins: dict[Path_, str], *, lines: bool = True) -> Any:
    import ruamel.yaml
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        events = iter(ruamel.yaml.YAML(typ="safe", pure=True).parse(io.StringIO(text)))
        return _Builder(name, origins, events).document()
    except ReaderError as error:
        line = text.count("\n", 0, error.position if isinstance(error.position, int) else 0) + 1
        place = f"{name}:{line}" if lines else name
        raise UserError(f"{place}: not a text file: a control character is in it") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line_text = f":{mark.line + 1}" if mark is not None and lines else ""
        problem = " ".join(str(error.problem or error.context or "not YAML").split())
        if "\\t" in problem or "\t" in (text.splitlines()[mark.line] if mark and mark.line < text.count("\n") else ""):
            problem = "a tab: indent with blanks"
        raise UserError(f"{name}{line_text}: not YAML: {shown_path(problem)}") from None
    except (YAMLError, ValueError) as error:
        raise UserError(f"{name}: not YAML: {shown_path(' '.join(str(error).split()))}") from None


class _Builder:
    """From the parser's events to plain data, minding lines."""

    def __init__(self, name: str, origins: dict[Path_, str], events: Any) -> None:
        self._name, self._origins, self._events = name, origins, events
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    def document(self) -> Any:
        self._next("StreamStart")
        event = next(self._events)
        if self._kind(event) == "StreamEnd":
            return None
        value = self._value(next(self._events), ())
        self._next("DocumentEnd")
        event = next(self._events)
        if self._kind(event) != "StreamEnd":
            raise self._error(event, "a second document: keep one, without a `---` after it")
        return value

    @staticmethod
    def _kind(event: Any) -> str:
        return type(event).__name__.removesuffix("Event")

    def _next(self, kind: str) -> None:
        event = next(self._events)
        if self._kind(event) != kind:
            raise self._error(event, "not YAML")

    def _error(self, event: Any, problem: str) -> UserError:
        return UserError(f"{self._name}:{event.start_mark.line + 1}: {problem}")

    def _count(self, event: Any, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self._error(event, f"more than {MAX_NODES} values: write fewer, or use fewer aliases")

    def _value(self, event: Any, path: Path_) -> Any:
        kind = self._kind(event)
        if kind == "Alias":
            if event.anchor not in self._anchors:
                raise self._error(event, f"*{event.anchor} is used before &{event.anchor} ends")
            value, nodes = self._anchors[event.anchor]
            self._count(event, nodes)
            return value
        if len(path) > MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels")
        tag = None if event.tag is None else str(event.tag)
        if tag is not None and not (kind == "Scalar" and tag in ("!", "tag:yaml.org,2002:str")):
            raise self._error(event, f"the tag {shown(tag)} is not allowed: remove it")
        before = self._nodes
        self._count(event, 1)
        if kind == "Scalar":
            plain = event.style in (None, "") and tag is None
            value = _scalar(event.value) if plain else event.value
        elif kind == "SequenceStart":
            value = self._sequence(path)
        else:
            value = self._mapping(path)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._nodes - before)
        return value

    def _sequence(self, path: Path_) -> list[Any]:
        items: list[Any] = []
        while self._kind(event := next(self._events)) != "SequenceEnd":
            here = (*path, len(items))
            self._origins[here] = f"{self._name}:{event.start_mark.line + 1}"
            items.append(self._value(event, here))
        return items

    def _mapping(self, path: Path_) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while self._kind(event := next(self._events)) != "MappingEnd":
            if self._kind(event) != "Scalar":
                raise self._error(event, "a key must be a word")
            key = event.value
            here = (*path, key)
            if key in items:
                raise self._error(event, f"the key {shown(key)} is here twice: first at {self._origins[here]}")
            self._count(event, 1)
            self._origins[here] = f"{self._name}:{event.start_mark.line + 1}"
            items[key] = self._value(next(self._events), here)
        return items


def _scalar(text: str) -> Any:
    """A plain scalar by the core schema of YAML 1.2 (chapter 10.3)."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if len(text) <= 100:
        if _INT.fullmatch(text):
            return int(text)
        if _OCT.fullmatch(text):
            return int(text[2:], 8)
        if _HEX.fullmatch(text):
            return int(text[2:], 16)
        if _FLOAT.fullmatch(text):
            return float(text)
    if text.lstrip("+-")[:1] == "." and len(text.lstrip("+-")) == len(text) - (text[0] in "+-"):
        body = text.lstrip("+-")[1:]
        if body in _SPECIAL:
            return -_SPECIAL[body] if text[0] == "-" else _SPECIAL[body]
        if text in (".nan", ".NaN", ".NAN"):
            return float("nan")
    return text
