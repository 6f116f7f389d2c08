"""YAML 1.2 parser that records the location of every value and supports only core schema types.

`12:00` and `no` are strings, `1e3` is a number, and `010` is ten. Duplicate keys, tags, multiple documents, and alias
bombs are reported as errors with file and line.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.contract.problems import FieldPath, show
from hpcbench.errors import UserError
from hpcbench.files import shown_path

MAX_BYTES = 1 << 20
MAX_NODES = 50_000
MAX_DEPTH = 32


@dataclass
class YamlDocument:
    """Content of a YAML file, and the location of each value."""

    name: str
    """File name for messages."""
    text: bytes
    """Raw text of the file."""
    data: dict[str, Any]
    """Parsed content: mappings, lists, strings, numbers, booleans, and None."""
    origins: dict[FieldPath, str] = field(default_factory=dict)
    """``file:line`` (or the option) of each key and list item."""

    def where(self, path: FieldPath) -> str:
        """Return the ``file:line`` (or the option) of a value.

        If the value itself has none, return that of its first inner value, which `--set` may have created, or that of
        the innermost enclosing section in the file.
        """
        if path and path not in self.origins:
            for inner, origin in self.origins.items():
                if inner[: len(path)] == path:
                    return origin
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return self.name


def read(path: Path) -> YamlDocument:
    """Read a YAML file whose root is a mapping.

    Raises
    ------
    UserError
        The file is not readable, empty, too large, not text, not YAML 1.2, or not a mapping.
    """
    name = shown_path(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise UserError(f"{name}: is a directory: give the YAML file in this directory") from None
    except FileNotFoundError:
        raise UserError(f"{name}: no such file: check the path") from None
    except PermissionError:
        raise UserError(f"{name}: cannot be read: check its permissions") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
        raise UserError(f"{name}: is larger than {MAX_BYTES >> 20} MiB: is this the right file?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{name}:{line}: is not UTF-8 text (byte {raw[error.start]:#04x}): is this the right file?"
        ) from None
    origins: dict[FieldPath, str] = {}
    data = _parse(text, name, origins)
    if data is None and not text.strip():
        raise UserError(f"{name}: is empty: see `hpcbench schema` for its fields")
    if not isinstance(data, dict):
        content = {list: "a list", type(None): "nothing"}.get(type(data), show(data))
        raise UserError(f"{name}:1: expected `key: value` lines at the root, found {content}")
    return YamlDocument(name, raw, data, origins)


def parse_value(text: str, name: str) -> Any:
    """Parse a single YAML value, such as a `--set` value.

    Raises
    ------
    UserError
        The text is not YAML. The message contains `name`.
    """
    return _parse(text, name, {}, lines=False)


def _parse(text: str, name: str, origins: dict[FieldPath, str], *, lines: bool = True) -> Any:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    yaml = _core_schema()
    try:
        root = yaml.compose(text)
        return None if root is None else _Builder(name, origins, yaml.constructor.construct_object).value(root, ())
    except ReaderError as error:
        line = text.count("\n", 0, error.position if isinstance(error.position, int) else 0) + 1
        place, problem = f":{line}" if lines else "", "not a text file: it contains a control character"
    except MarkedYAMLError as error:
        starts_earlier = any(phrase in str(error.context) for phrase in ("simple key", "quoted scalar", "flow "))
        mark = (error.context_mark if starts_earlier else error.problem_mark) or error.problem_mark
        place = f":{mark.line + 1}" if mark is not None and lines else ""
        problem = _explain(error, text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else "")
    except RecursionError:
        place, problem = "", f"nested deeper than {MAX_DEPTH} levels"
    except (YAMLError, ValueError) as error:
        place, problem = "", f"not YAML: {' '.join(str(error).split())}"
    raise UserError(f"{name}{place}: {shown_path(problem)}")


_REMEDIES = (
    (
        "mapping values are not allowed",
        "{line} is indented too deep, or has a second `: `: align it, or use quotes",
    ),
    ("could not find expected ':'", "{line} is not `key: value`: write a colon and a blank after the key"),
    ("cannot start any token", "a value must not begin with {problem}: put it in quotes"),
    (
        "expected <block end>",
        "the indentation of {line} matches no section above: align it with the keys of its section",
    ),
    ("unexpected end of stream", "the quote in {line} is not closed: add the second quote"),
    ("expected ',' or ", "the bracket in {line} is not closed: add ] or }}"),
    ("found undefined escape", "{line} has an unknown \\ escape: use single quotes"),
    ("duplicate anchor", "the anchor in {line} is defined twice: rename one of the two"),
)
"""Phrases in ruamel's messages, and the remedies that replace them."""


def _explain(error: Any, line: str) -> str:
    """Return the cause and remedy of an error reported by ruamel."""
    problem = " ".join(str(error.problem or error.context or "").split())
    if "undefined alias" in problem:
        alias = show(problem.split()[-1])[2:-2]
        return f"*{alias} is an alias without an anchor &{alias} above it: put a value that begins with * in quotes"
    if "another document" in problem:
        return "a second document begins here: keep one document, without `---` after it"
    if "\t" in line or "\\t" in problem:
        return "not YAML: it contains a tab: use spaces to indent, and between key and value"
    for phrase, remedy in _REMEDIES:
        if phrase in problem:
            return (
                f"not YAML: {remedy.format(line=show(line.strip()), problem=problem.partition(' character ')[2][:3])}"
            )
    return f"not YAML: {problem}"


_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": re.compile("(~|null|Null|NULL)?"),
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "int": re.compile("[-+]?[0-9]{1,100}|0o[0-7]{1,98}|0x[0-9a-fA-F]{1,98}"),
    "float": re.compile(
        r"(?!.{101})[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
}
"""Plain scalars that are not strings, according to the YAML 1.2 core schema (section 10.3).

Numbers are limited to 100 digits.
"""
_TAGS = {_TAG + kind for kind in ("map", "seq", "str", *_SCALARS)}


def _core_schema() -> Any:
    """Return a ruamel parser that accepts only the scalars in `_SCALARS`.

    The default parser also accepts dates, ``1_000`` and ``<<``.
    """
    import ruamel.yaml
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.resolver import VersionedResolver
    from ruamel.yaml.tag import Tag

    class CoreResolver(VersionedResolver):
        processing_version = (1, 2)  # regardless of a %YAML line

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is ScalarNode and implicit[0]:
                kinds = (name for name, pattern in _SCALARS.items() if pattern.fullmatch(value))
                return Tag(suffix=_TAG + next(kinds, "str"))
            return super().resolve(kind, value, (False, False))

    yaml = ruamel.yaml.YAML(typ="safe", pure=True)
    yaml.Resolver = CoreResolver
    yaml.composer.warn_double_anchors = False
    return yaml


class _Builder:
    """Builder of plain data from ruamel nodes, which records the line of each value and refuses unneeded constructs."""

    def __init__(self, name: str, origins: dict[FieldPath, str], scalar: Callable[[Any], Any]) -> None:
        self._name, self._origins, self._scalar = name, origins, scalar
        self._nodes = 0
        self._open: set[int] = set()

    def value(self, node: Any, path: FieldPath) -> Any:
        """Build the value of the node at `path`. Aliased content is built and counted at each use."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            where = self._origins.get(path[:1], self._name)
            raise UserError(f"{where}: more than {MAX_NODES} values: write fewer, or use fewer aliases")
        if id(node) in self._open:
            raise self._error(node, f"*{node.anchor} is used before &{node.anchor} ends")
        if len(path) > MAX_DEPTH:
            raise self._error(node, f"nested deeper than {MAX_DEPTH} levels")
        if str(node.tag) not in _TAGS:
            raise self._error(node, f"the tag {show(str(node.tag))} is not allowed: remove it")
        if node.id == "scalar":
            self._check_whole(node)
            return self._scalar(node)
        self._open.add(id(node))
        built = self._sequence(node, path) if node.id == "sequence" else self._mapping(node, path)
        self._open.remove(id(node))
        return built

    def _sequence(self, node: Any, path: FieldPath) -> list[Any]:
        items: list[Any] = []
        for item in node.value:
            here = (*path, len(items))
            self._origins[here] = self._line(item)
            items.append(self.value(item, here))
        return items

    def _mapping(self, node: Any, path: FieldPath) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for key, item in node.value:
            if key.id != "scalar":
                template = key.id == "mapping" and key.flow_style
                cause = "{{ ... }} is not filled in here: write the value itself" if template else "write a word"
                raise self._error(key, f"a key is a {key.id}, not a word: {cause}")
            self._check_whole(key)
            here = (*path, key.value)
            if key.value in items:
                raise self._error(
                    key,
                    f"the key {show(key.value)} is given twice (first at {self._origins[here]}): remove one of the two",
                )
            self._origins[here] = self._line(key)
            items[key.value] = self.value(item, here)
        return items

    def _check_whole(self, node: Any) -> None:
        """Refuse text with an unpaired surrogate, which cannot be encoded."""
        try:
            node.value.encode()
        except UnicodeEncodeError:
            raise self._error(node, f"{show(node.value)} is not text: an unpaired \\u escape") from None

    def _line(self, node: Any) -> str:
        return f"{self._name}:{node.start_mark.line + 1}"

    def _error(self, node: Any, problem: str) -> UserError:
        return UserError(f"{self._line(node)}: {problem}")
