"""`tf.contrib.training.HParams`: named hyperparameters that the text of a flag can override."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# "name=1", "name[2]=1" or "name=[1,2]", separated by commas.
_ASSIGNMENT = re.compile(
    r"\s*(?P<name>[A-Za-z]\w*)\s*(?:\[\s*(?P<index>\d+)\s*\])?\s*=\s*(?:\[(?P<many>[^\]]*)\]|(?P<one>[^,\[]*))\s*(?:,|$)"
)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class HParams:
    """Hyperparameters as attributes. Each keeps the type of its first value. All values of a list have the same type.

    >>> hparams = HParams(learning_rate=0.1, layers=[128, 64])
    >>> hparams.parse("learning_rate=0.5,layers=[32]").values()
    {'layers': [32], 'learning_rate': 0.5}
    """

    def __init__(self, **values: Any) -> None:
        self._types: dict[str, tuple[type, bool]] = {}
        for name, value in values.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter. Raises ValueError for a taken name, and an empty list, whose type is unknown."""
        if name in self._types or hasattr(self, name):
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        if isinstance(value, (list, tuple)):
            if not value:
                raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
            self._types[name] = (type(value[0]), True)
        else:
            self._types[name] = (type(value), False)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Set a hyperparameter, converting the value to its type.

        Raises KeyError if the name is unknown, and ValueError if the value cannot be converted, or if a single value is
        given for a list or the reverse.
        """
        kind, is_list = self._types[name]
        if isinstance(value, (list, tuple)) != is_list:
            expected = "a list" if is_list else "one value"
            raise ValueError(f"Hyperparameter {name} takes {expected}, got {value!r}")
        if is_list:
            setattr(self, name, [_cast(name, kind, item) for item in value])
        else:
            setattr(self, name, _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Remove a hyperparameter if it exists."""
        if self._types.pop(name, None) is not None:
            delattr(self, name)

    def parse(self, values: str) -> HParams:
        """Set values from text such as ``"learning_rate=0.5,layers=[32,16]"`` or ``"layers[0]=8"``; return self.

        Raises ValueError if the text is malformed, a name is unknown, or a value cannot be converted.
        """
        position = 0
        assigned: set[tuple[str, str | None]] = set()
        while position < len(values):
            match = _ASSIGNMENT.match(values, position)
            if match is None or match.end() == position:
                raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
            key = (match.group("name"), match.group("index"))
            if not assigned.isdisjoint({key, (key[0], None)}) or (key[1] is None and key[0] in dict(assigned)):
                raise ValueError(f"Multiple assignments to variable {key[0]!r} in {values}")
            assigned.add(key)
            self._assign(match)
            position = match.end()
        return self

    def _assign(self, match: re.Match[str]) -> None:
        name, index, many, one = match.group("name", "index", "many", "one")
        if name not in self._types:
            raise ValueError(f"Unknown hyperparameter type for {name}")
        kind, is_list = self._types[name]
        if many is not None:
            self.set_hparam(name, [_read(name, kind, item) for item in many.split(",") if item.strip()])
        elif index is not None:
            items = list(getattr(self, name)) if is_list else []
            if not int(index) < len(items):
                raise ValueError(f"Hyperparameter {name} has no element {index}")
            items[int(index)] = _read(name, kind, one)
            self.set_hparam(name, items)
        else:
            self.set_hparam(name, _read(name, kind, one))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Set all values of `values_dict`; return self."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """Set all values of a JSON object; return self."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: int | None = None, sort_keys: bool = False) -> str:
        """Return the values as a JSON object."""
        return json.dumps(self.values(), indent=indent, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        return {name: getattr(self, name) for name in sorted(self._types)}

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, or `default` if there is none."""
        return getattr(self, key) if key in self._types else default

    def __contains__(self, key: str) -> bool:
        return key in self._types

    def __repr__(self) -> str:
        return f"HParams({sorted(self.values().items())})"

    __str__ = __repr__


def _read(name: str, kind: type, text: str) -> Any:
    text = text.strip()
    if kind is bool:
        try:
            return _BOOLEANS[text.lower()]
        except KeyError:
            raise ValueError(f"Could not parse hyperparameter {name}: {text!r} is neither true nor false") from None
    if kind is type(None):
        return text
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"Could not parse hyperparameter {name}: {text!r} is not of type {kind.__name__}") from None


def _cast(name: str, kind: type, value: Any) -> Any:
    if kind is type(None) or isinstance(value, kind):
        return value
    widens = kind is float and isinstance(value, int) and not isinstance(value, bool)
    narrows = kind is int and hasattr(value, "__index__") and not isinstance(value, bool)
    if not (widens or narrows):
        raise ValueError(f"Could not cast hyperparameter {name} from {value!r} to {kind.__name__}")
    return kind(value)
