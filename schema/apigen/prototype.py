"""C prototypes as they stand in cuda.h: "CUresult cuX(CUdeviceptr *dptr, size_t bytesize)"."""

import re
from dataclasses import dataclass

from .errors import DescriptionError

_PROTOTYPE = re.compile(r"^CUresult\s+([A-Za-z_]\w*)\s*\((.*)\)$", re.S)
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

    @property
    def target(self):
        """What the pointer points to ("int" of "const int*")."""
        return self.base + "*" * (self.stars - 1)


def _normalise(text):
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\s*\*\s*", "*", text)


def parse(text, where):
    """(name, [Parameter]) of a prototype."""
    match = _PROTOTYPE.match(text.strip())
    if not match:
        raise DescriptionError(where, f"'{text}' is not a prototype 'CUresult name(parameters)'")
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
