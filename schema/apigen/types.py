"""api/types.yml: what the generator knows about C types."""

from .errors import DescriptionError
from .loader import load_yaml

_KEYS = ("scalars", "enums", "handles", "kinds", "structs", "opaque")


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
        self.kinds = data["kinds"]
        self.structs = data["structs"]
        self.opaque = set(data["opaque"])
        for handle, kind in self.handles.items():
            if kind not in self.kinds:
                raise DescriptionError(self.handles.at(handle), f"{handle}: unknown kind '{kind}'")

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
