"""Sets the fields of messages. The errors name the option, what was given and what is allowed."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

_BOOL = FieldDescriptor.CPPTYPE_BOOL
_ALLOWED: dict[int, str] = {
    _BOOL: "True or False", FieldDescriptor.CPPTYPE_FLOAT: "a number", FieldDescriptor.CPPTYPE_STRING: "a text",
    FieldDescriptor.CPPTYPE_INT32: "a whole number", FieldDescriptor.CPPTYPE_UINT64: "a whole number"}
_RANGES: dict[int, str] = {
    FieldDescriptor.CPPTYPE_INT32: f"a whole number from {-2**31} to {2**31 - 1}",
    FieldDescriptor.CPPTYPE_UINT64: f"a whole number from 0 to {2**64 - 1}",
    FieldDescriptor.CPPTYPE_STRING: "a text that UTF-8 can encode"}

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def wrong(place: str, value: object, allowed: str, kind: type[Exception] = TypeError) -> Exception:
    """Makes the error of a wrong value."""
    return kind(f"{place}: got {_short.repr(value)}, allowed: {allowed}")


def _kind(error: Exception) -> type[Exception]:
    return TypeError if isinstance(error, TypeError) else ValueError


def set_field(message: Any, field: str, place: str, value: object) -> None:
    """Sets a field that is no list, no map and no message."""
    kind = message.DESCRIPTOR.fields_by_name[field].cpp_type
    if isinstance(value, bool) != (kind == _BOOL):  # protobuf takes either for the other
        raise wrong(place, value, _ALLOWED[kind])
    try:
        setattr(message, field, value)
    except TypeError:
        raise wrong(place, value, _ALLOWED[kind]) from None
    except ValueError:
        raise wrong(place, value, _RANGES.get(kind, _ALLOWED[kind]), ValueError) from None


def extend(repeated: Any, place: str, values: object, allowed: str, element: str) -> None:
    """Appends to a list. `allowed` describes the list, and `element` one of its values."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise wrong(place, values, allowed)
    items = list(values)
    try:
        repeated.extend(items)
    except (TypeError, ValueError):
        for number, item in enumerate(items):
            try:
                repeated.append(item)
            except (TypeError, ValueError) as error:
                raise wrong(f"{place}[{number}]", item, element, _kind(error)) from None
        raise


def json_text(place: str, value: object) -> str:
    """Returns the JSON of a value. A text is JSON already."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise wrong(place, value, f"what JSON can express ({error})", _kind(error)) from None
