"""JSON objects of the log. A class declares the fields of an object once. This module writes and reads the objects."""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, reduce
from operator import or_
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hpcbench.contract.values import get_integer, get_number, get_text

P = TypeVar("P", bound="LogObject")
_Reader = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class LogObject:
    """A JSON object of the log.

    Each field of a subclass is a key of the object, in the same order. A field without a default is always written, and
    the value None becomes null. A field with a default is omitted if its value is the default. The type of a field is
    ``str``, ``int``, ``float``, ``bool``, ``dict[str, Any]`` or a `LogObject`. The type may also be a tuple of one of
    these types, or a union of these types and None.
    """

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, metadata={"key": False})
    """The object as it was read, including keys that no field declares. This copy is never written."""

    @classmethod
    def read(cls: type[P], data: Mapping[str, Any], **more: Any) -> P:
        """Read the object from a log.

        A field that is missing or has the wrong type is set to its default, or to None if it has no default.

        Parameters
        ----------
        more
            Values of fields that are not keys of the object.
        """
        values = {}
        for key in _keys(cls):
            value = key.read(data.get(key.name))
            values[key.name] = key.default if value is None else value
        return cls(**values, raw=data, **more)

    @classmethod
    def declared(cls: type[P], data: Mapping[str, Any]) -> P:
        """Create an object for writing from plain values.

        Raises
        ------
        TypeError
            A key is not declared, or a key without a default is missing.
        """
        parts = {key.name: key.part for key in _keys(cls) if key.part}
        return cls(**{name: _declared(parts[name], value) if name in parts else value for name, value in data.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the object as JSON data."""
        values = ((key, getattr(self, key.name)) for key in _keys(type(self)))
        return {key.name: _written(value) for key, value in values if key.always or value != key.default}


@dataclass(frozen=True)
class _Key:
    name: str
    read: _Reader
    """A function that returns the value if it has the key's type, else None."""
    always: bool
    """Whether the key is written even if its value is the default."""
    default: Any
    part: type[LogObject] | None
    """The class of the nested object or objects."""


def _keys(cls: type[LogObject]) -> tuple[_Key, ...]:
    return _keys_of(cls)  # type: ignore[arg-type]  # a class is hashable even if its instances are not


@cache
def _keys_of(cls: type[LogObject]) -> tuple[_Key, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _Key(
            item.name,
            _reader(bare := _bare(hints[item.name])),
            item.default is MISSING,
            None if item.default is MISSING else item.default,
            _part(bare),
        )
        for item in fields(cls)
        if item.metadata.get("key", True)
    )


_UNIONS = (Union, types.UnionType)


def _bare(hint: Any) -> Any:
    """Return the type without None."""
    if get_origin(hint) in _UNIONS:
        return reduce(or_, (kind for kind in get_args(hint) if kind is not type(None)))
    return hint


def _reader(hint: Any) -> _Reader:
    if get_origin(hint) in _UNIONS:
        readers = [_reader(kind) for kind in get_args(hint)]
        return lambda value: next((parsed for read in readers if (parsed := read(value)) is not None), None)
    if get_origin(hint) is tuple:
        read_item = _reader(get_args(hint)[0])
        return lambda value: (
            tuple(parsed for item in value if (parsed := read_item(item)) is not None)
            if isinstance(value, list)
            else None
        )
    if get_origin(hint) is dict:
        return lambda value: value if isinstance(value, dict) else None
    if issubclass(hint, LogObject):
        return lambda value: hint.read(value) if isinstance(value, dict) else None
    return _SIMPLE[hint]


_SIMPLE: dict[type, _Reader] = {
    str: get_text,
    int: get_integer,
    float: get_number,
    bool: lambda value: value if isinstance(value, bool) else None,
}


def _part(hint: Any) -> type[LogObject] | None:
    inner = get_args(hint)[0] if get_origin(hint) is tuple else hint
    return inner if isinstance(inner, type) and issubclass(inner, LogObject) else None


def _declared(part: type[LogObject], value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(part.declared(item) for item in value)
    return value if value is None else part.declared(value)


def _written(value: Any) -> Any:
    if isinstance(value, LogObject):
        return value.to_json()
    return [_written(item) for item in value] if isinstance(value, tuple) else value
