"""The structs of NVML as their headers write them (schema/nvml/*.h), and what a client makes of one
that a server sent: texts end, counts are no more than there are elements.
"""

import re
from dataclasses import dataclass

_STRUCT = re.compile(r"^typedef struct \{\n(.*?)\n\} (\w+);", re.S | re.M)
_ALIAS = re.compile(r"^typedef (nvml\w+_t)\s+(nvml\w+_t);", re.M)
_FIELD = re.compile(r"^  (\w[\w ]*?)\s+(\w+)(\[\w+\])?;$", re.M)
_NESTED = re.compile(r"^  struct \{\n(.*?)\n  \} (\w+)(\[\w+\])?;$", re.S | re.M)


@dataclass
class Field:
    ctype: str  # empty: a struct without a name
    name: str
    is_array: bool


class Structs:
    """counts: type -> {field that counts: array}, of types.yml."""

    def __init__(self, folder, counts):
        texts = (p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.h")))
        text = re.sub(r" *//[^\n]*", "", "".join(texts))
        self._fields = {name: self._parse(body) for body, name in _STRUCT.findall(text)}
        self._aliases = {alias: name for name, alias in _ALIAS.findall(text)}
        self._counts = counts

    @staticmethod
    def _parse(body):
        nested = [Field("", name, bool(n)) for _, name, n in _NESTED.findall(body)]
        flat = _NESTED.sub("", body)
        return [Field(t, name, bool(n)) for t, name, n in _FIELD.findall(flat)] + nested

    def resolve(self, name):
        """A newest layout's own name."""
        return self._aliases.get(name, name)

    def fields(self, name):
        """Names of the fields; empty for what is no struct."""
        return [f.name for f in self._fields.get(self.resolve(name), ())]

    def repairs(self, name):
        """Lines of C++ that mend `it`, of that type; none where nothing can be wrong."""
        name = self.resolve(name)
        fields = self._fields.get(name, ())
        out = [f"end_text(it.{f.name});" for f in fields if f.ctype == "char" and f.is_array]
        out += [f"limit(&it.{n}, it.{of});" for n, of in self._counts.get(name, {}).items()]
        for f in fields:
            if self.repairs(f.ctype):
                each = f"for (auto& each : it.{f.name}) repair(each);"
                out.append(each if f.is_array else f"repair(it.{f.name});")
        return out

    def repaired(self, names):
        """Those of the types, and of the types within them, that need it: inner ones first."""
        found = []

        def visit(name):
            name = self.resolve(name)
            for f in self._fields.get(name, ()):
                visit(f.ctype)
            if name not in found and self.repairs(name):
                found.append(name)

        for name in sorted(names):
            visit(name)
        return found
