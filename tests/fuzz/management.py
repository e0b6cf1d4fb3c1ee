"""Calls of management sessions, made by the description of NVML: most as a client would make them,
some with lengths and counts that do not fit each other, or broken in their form."""

import collections
import re
import struct
import sys

import fargpu_testing as testing
from calls import EDGES
from connection import Connection

sys.path.insert(0, str(testing.ROOT / "schema"))
from apigen.nvml import describe  # noqa: E402

MANAGE = 19
PLAIN = {"char": 1, "short": 2, "int": 4, "long": 8, "double": 8}


class Sizes:
    """Of the structs in schema/nvml, as a C compiler lays them out."""

    def __init__(self):
        text = "".join(p.read_text() for p in sorted((testing.ROOT / "schema/nvml").glob("*.h")))
        text = re.sub(r" *//[^\n]*", "", text)
        self.numbers = dict(re.findall(r"#define (\w+) (\d+)U?$", text, re.M))
        found = re.findall(r"typedef (struct|union) \{\n(.*?)\n\} (\w+);", text, re.S)
        self.bodies = {name: (kind, body) for kind, body, name in found}
        self.aliases = {b: a for a, b in re.findall(r"^typedef ([\w ]+?) (nvml\w+);", text, re.M)}

    def of(self, name):
        return self.laid_out(name)[0]

    def laid_out(self, name):
        """(size, alignment)"""
        if name in self.bodies:
            return self.of_fields(*self.bodies[name])
        if name in self.aliases:
            return self.laid_out(self.aliases[name])
        size = 8 if name.endswith("*") else PLAIN.get(name.split()[-1], 4)  # or an enum
        return size, size

    def of_fields(self, kind, body):
        end = whole = 0
        alignment = 1
        pattern = (
            r"^ +(struct|union) \{\n(.*?)\n +\} \w+(?:\[(\w+)\])?;|^ +(\w.*?) \w+(?:\[(\w+)\])?;"
        )
        for match in re.finditer(pattern, body, re.M | re.S):
            inner = self.of_fields(match[1], match[2]) if match[1] else self.laid_out(match[4])
            number = match[3] or match[5] or "1"
            size = inner[0] * int(self.numbers.get(number, number))
            alignment = max(alignment, inner[1])
            end = -(-end // inner[1]) * inner[1] + size if kind == "struct" else max(end, size)
            whole = -(-end // alignment) * alignment
        return whole, alignment


class Management:
    """The functions that have a message."""

    def __init__(self, layouts):
        self.layouts, self.sizes = layouts, Sizes()
        self.said = collections.deque(maxlen=64)  # words of answers
        self.with_lengths = collections.defaultdict(set)  # by kind of argument: names
        library = describe.load(testing.ROOT / "schema")
        header = (testing.BUILD.folder / "generated/schema/nvml_opcodes.h").read_text()
        self.opcode = {m[1]: int(m[2]) for m in re.finditer(r"op_(\w+) = (\d+);", header)}
        self.by_name = {f.name: f for f in library.functions if f.wire}
        for name, function in self.by_name.items():
            for a in function.arguments:
                if a.length or a.versions or (a.direction, a.shape) == ("inout", "value"):
                    self.with_lengths[a.direction, a.shape].add(name)

    def arguments(self, function, random, broken):
        """What the client puts for them, item by item; `broken`: how often one is so."""
        values, items = {}, []
        for a in function.arguments:
            if a.direction != "out" and a.shape == "value":
                values[a.name] = self.number(function, a, random, broken)
        for a in function.arguments:
            items += self.items(a, values, random, broken)
        if random.random() < broken and items:
            place = random.randrange(len(items))
            wrong = random.choice((struct.pack("<Q", random.choice(EDGES)), b"", bytes(8)))
            items[place : place + random.randrange(2)] = [wrong]
        return b"".join(items)

    def number(self, function, argument, random, broken):
        is_length = any(re.search(rf"\b{argument.name}\b", a.length) for a in function.arguments)
        if random.random() < (broken if is_length else 0.05):
            return random.choice(EDGES)
        if is_length:
            return random.choice((0, 1, 2, 3, 8, 64, 96, 256))
        if self.said and random.random() < 0.3:
            return random.choice(self.said)
        return random.choice((0, 0, 0, 1, 1, 2, 3, 4, random.randrange(16)))

    def items(self, a, values, random, broken):
        there = [struct.pack("<Q", random.random() < 0.9)]
        if a.direction == "in" and a.shape == "device":
            return [struct.pack("<Q", random.choice((0, 0, 0, 0, 0, 0, 1, 2, *EDGES[-2:])))]
        if a.direction == "in":
            return [struct.pack("<Q", values[a.name] % (1 << 64))]
        if a.versions:
            base, number = random.choice(list(a.versions.items()))
            size = self.sizes.of(base)
            word = number << 24 | size if random.random() < 0.97 else random.choice(EDGES)
            return [self.data(struct.pack("<I", word % (1 << 32)), size, random, broken)]
        there = (
            there if a.optional or (a.direction == "out" and a.shape in ("array", "cstr")) else []
        )
        if a.direction == "out":
            return there
        if a.shape == "value":
            return [*there, struct.pack("<Q", values[a.name] % (1 << 64))]
        count = values.get(a.length, 0)
        if random.random() < broken:
            count = random.randrange(8)  # not as many as another argument says
        size = self.sizes.of(a.base) * min(count, 1 << 12)
        return [*there, self.data(b"", size, random, broken)]

    @staticmethod
    def data(begin, size, random, broken):
        """Its length, its bytes, zeros; seldom with a few bytes more or less."""
        if random.random() < broken:
            size = max(0, size + random.choice((-8, -4, -1, 1, 8)))
        rest = random.choice((bytes, random.randbytes))(max(0, size - len(begin)))
        return struct.pack("<Q", size) + begin + rest + bytes(-(len(begin) + len(rest)) % 8)

    def body(self, *how):
        return self.layouts.encode("NvmlCall", {"arguments": self.arguments(*how)})


class Session:
    """One by hand."""

    def __init__(self, daemon, counts, random):
        self.counts, self.management, self.random = counts, counts.management, random
        self.connection = Connection(daemon, MANAGE)

    def run(self, times):
        """Calls of those that have succeeded or were refused least, and of any; or, broken, most of
        those that have lengths."""
        names = sorted(self.management.by_name, key=self.counts.share)
        broken = self.random.choice((0, 0.2))
        try:
            for _ in range(times):
                some = names[:20]
                if broken:
                    some = sorted(self.random.choice(list(self.management.with_lengths.values())))
                self.call(self.random.choice(some if self.random.random() < 0.7 else names), broken)
        finally:
            self.connection.close()

    def call(self, name, broken):
        body = self.management.body(self.management.by_name[name], self.random, broken)
        try:
            result, answer = self.connection.call(self.management.opcode[name], body)
        except (OSError, EOFError):
            self.counts.refused[name] += 1
            raise
        if result == 0 and answer:
            self.management.said += struct.unpack_from("<I", answer, max(0, len(answer) - 8))
            result = self.management.layouts.number("NvmlCall", answer, "result")
        (self.counts.refused if result else self.counts.succeeded)[name] += 1
