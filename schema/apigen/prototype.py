"""C prototypes as they stand in a header: "CUresult cuX(CUdeviceptr *dptr, size_t bytesize)"."""

import re
from dataclasses import dataclass

from .errors import DescriptionError

_PARAMETER = re.compile(r"^(.*?[\s*])([A-Za-z_]\w*)$", re.S)


@dataclass(frozen=True)
class Parameter:
    """One parameter. ctype is normalised ("const void*"); base is ctype without const and
    pointers.
    """

    name: str
    ctype: str
    base: str
    stars: int
    const: bool

    @property
    def declaration(self):
        return f"{self.ctype} {self.name}"


class Signature:
    """The parameters of a function as C++, for classes with a list `arguments`."""

    @property
    def declaration(self):
        return ", ".join(a.declaration for a in self.arguments)

    @property
    def types(self):
        return ", ".join(a.ctype for a in self.arguments)

    @property
    def values(self):
        return ", ".join(a.name for a in self.arguments)


def _normalise(text):
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\s*\*\s*", "*", text)


def parse(text, where, result="CUresult"):
    """(name, [Parameter]) of a prototype; `result`: a pattern of what it may return."""
    match = re.match(rf"^(?:{result})\s*\b([A-Za-z_]\w*)\s*\((.*)\)$", text.strip(), re.S)
    if not match:
        raise DescriptionError(where, f"'{text}' is not a prototype '{result} name(parameters)'")
    name, inside = match[1], match[2].strip()
    parameters = []
    for piece in inside.split(",") if inside not in ("", "void") else []:
        part = _PARAMETER.match(piece.strip())
        if not part:
            raise DescriptionError(
                where, f"{name}: parameter '{piece.strip()}' needs a type and a name"
            )
        ctype = _normalise(part[1])
        base = ctype.rstrip("*")
        const = base.startswith("const ")
        if const:
            base = base[len("const ") :]
        parameters.append(Parameter(part[2], ctype, base, ctype.count("*"), const))
    names = [p.name for p in parameters]
    for duplicate in {n for n in names if names.count(n) > 1}:
        raise DescriptionError(where, f"{name}: parameter '{duplicate}' appears twice")
    return name, parameters
