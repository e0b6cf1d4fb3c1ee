"""api/types.yml: what the generator knows about C types and kinds of objects."""

import re
from dataclasses import dataclass

from .errors import DescriptionError
from .loader import load_yaml

_KEYS = ("scalars", "enums", "handles", "kinds", "structs", "opaque")
_STRUCT = ("size", "locations", "clear", "arrays")
_RULE = ("is", "number", "record", "lives_with", "parents", "server", "client")
_CONTEXT_RULE = (*_RULE, "client_before")  # a context works until it ends
# Of ids: common/rpc/handle_kind.h.
_KIND_BITS = 5


@dataclass
class Kind:
    """What a handle stands for. parents: names of kinds; the last three: names of parts."""

    name: str
    enumerator: str
    number: int
    record: str
    lives_with: str
    parents: list
    server: list
    client: list
    client_before: list = ()


def _kind(name, rule, where):
    if not isinstance(rule, dict):
        raise DescriptionError(where, f"kind '{name}' has no rule: {', '.join(_RULE)}")
    keys = _CONTEXT_RULE if name == "context" else _RULE
    for key in keys:
        if key not in rule:
            raise DescriptionError(where, f"kind '{name}': '{key}' is missing")
    for key in rule:
        if key not in keys:
            raise DescriptionError(rule.at(key), f"kind '{name}': unknown key '{key}'")
    if not isinstance(rule["number"], int) or not 0 < rule["number"] < 1 << _KIND_BITS:
        raise DescriptionError(
            rule.at("number"), f"kind '{name}': a number from 1 to {(1 << _KIND_BITS) - 1}"
        )
    if rule["lives_with"] not in ("session", "context"):
        raise DescriptionError(
            rule.at("lives_with"), f"kind '{name}' lives with its session or its context"
        )
    for key in keys[_RULE.index("parents") :]:
        if not isinstance(rule[key], list):
            raise DescriptionError(rule.at(key), f"kind '{name}': '{key}' is a list")
    words = [("is", rule["is"]), ("record", rule["record"])]
    words += [(side, part) for side in keys[_RULE.index("server") :] for part in rule[side]]
    for key, value in words:
        if not re.fullmatch(r"[A-Za-z]\w*", str(value)):
            raise DescriptionError(rule.at(key), f"kind '{name}': '{key}' holds names of C++")
    return Kind(name, *(rule[key] for key in keys))


def _kinds(data):
    kinds = {name: _kind(name, rule, data.at(name)) for name, rule in data.items()}
    for key in ("number", "enumerator"):
        owner = {}
        for kind in kinds.values():
            value = getattr(kind, key)
            if value in owner:
                raise DescriptionError(
                    data.at(kind.name), f"kind '{kind.name}': {value} belongs to '{owner[value]}'"
                )
            owner[value] = kind.name
    for kind in kinds.values():
        for parent in kind.parents:
            if parent not in kinds:
                raise DescriptionError(
                    data.at(kind.name), f"kind '{kind.name}': unknown parent '{parent}'"
                )
    return kinds


class Types:
    """Lookup by C base type (without const and pointers)."""

    def __init__(self, path, root):
        data = load_yaml(path, root)
        for key in _KEYS:
            if key not in data:
                raise DescriptionError(data.where, f"section '{key}' is missing")
        for key in data:
            if key not in _KEYS:
                raise DescriptionError(data.at(key), f"unknown section '{key}'")
        self.scalars = data["scalars"]
        self.enums = set(data["enums"])
        self.handles = data["handles"]
        self.kinds = _kinds(data["kinds"])
        self.structs = data["structs"]
        self.opaque = set(data["opaque"])
        for name, info in self.structs.items():
            if not isinstance((info or {}).get("size"), int):
                raise DescriptionError(self.structs.at(name), f"{name}: 'size' (bytes) is missing")
            for key in info:
                if key not in _STRUCT:
                    raise DescriptionError(info.at(key), f"{name}: unknown key '{key}'")
        for name in self.structs:
            self._check_members(name)
        for handle, kind in self.handles.items():
            if kind not in self.kinds:
                raise DescriptionError(self.handles.at(handle), f"{handle}: unknown kind '{kind}'")

    def _check_members(self, name):
        info = self.structs[name]
        for member, array in (info.get("arrays") or {}).items():
            if not isinstance(array, dict) or set(array) != {"of", "len"}:
                raise DescriptionError(
                    info.at("arrays"), f"{name}.{member}: an array says 'of' and 'len'"
                )
            of = array["of"]
            if not self.is_plain(of) or (self.structs.get(of) or {}).get("arrays"):
                raise DescriptionError(
                    info.at("arrays"), f"{name}.{member}: '{of}' is no plain type"
                )

    def value_shape(self, base):
        """(shape, capnp type, kind) of a value of this type, or None when it cannot travel as a
        value.
        """
        if base == "CUdevice":
            return "device", "Int32", ""
        if base in self.handles:
            return "handle", "UInt64", self.handles[base]
        if base in self.enums:
            return "enum", "Int32", ""
        if base in self.scalars:
            return "scalar", self.scalars[base], ""
        return None

    def is_plain(self, base):
        """Elements of arrays: fixed size, no pointers, no handles."""
        return base in self.scalars or base in self.enums or base in self.structs
