"""Messages of all calls, made by the description of the API: each field gets a value of its kind,
which is right, has been right, or is wrong."""

import hashlib
import re
import struct
import subprocess
import sys

import fargpu_testing as testing

sys.path.insert(0, str(testing.ROOT / "schema"))
from apigen import describe  # noqa: E402

EDGES = [0, 1, 7, 8, 127, 128, 255, 65535, 1 << 20, (1 << 31) - 1, (1 << 32) - 1]
EDGES += [1 << 32, 1 << 47, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
SMALL = [0, 0, 1, 1, 2, 4, 8, 16, 64, 256, 4096]
PTX = b""".version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 v[64];
.visible .global .attribute(.managed) .align 4 .u32 m[4];
.visible .entry k(.param .u64 a, .param .u32 n)
{
ret;
}
"""
_WIDTH = {"Int8": 1, "UInt8": 1, "Bool": 1, "Int16": 2, "UInt16": 2, "Int64": 8, "UInt64": 8}
_WIDTH |= {"Float64": 8}


class Layouts:
    """Where Cap'n Proto puts the fields of the structs of a schema's folder."""

    def __init__(self):
        self.structs = {}
        folder = testing.ROOT / "schema"
        for path in [*sorted((folder / "generated").glob("*.capnp")), folder / "control.capnp"]:
            text = subprocess.run(
                ["capnp", "compile", "-ocapnp", path], check=True, stdout=subprocess.PIPE
            ).stdout.decode()
            self._read(text)

    def _read(self, text):
        for body in re.finditer(
            r"^struct (\w+) @\w+ \{  # (\d+) bytes, (\d+) ptrs(.*?)^\}", text, re.M | re.S
        ):
            fields = {}
            for field in re.finditer(
                r"^  (\w+) @\d+ :([^;]*);  # (?:bits\[(\d+), (\d+)\)|ptr\[(\d+)\])", body[4], re.M
            ):
                fields[field[1]] = (field[2], *(n and int(n) for n in field.groups()[2:]))
            self.structs[body[1]] = (int(body[2]), int(body[3]), fields)

    def encode(self, name, values):
        size, pointers, fields = self.structs[name]
        data, far, places = bytearray(size), bytearray(), {}
        for field, value in values.items():
            kind, first, end, pointer = fields[field]
            if pointer is None:
                count = (end - first) // 8 or 1
                data[first // 8 : first // 8 + count] = (value % (1 << 8 * count)).to_bytes(
                    count, "little"
                )
            else:
                value = value + b"\0" if kind == "Text" else value
                places[pointer] = (len(far) // 8, len(value))
                far += value + bytes(-len(value) % 8)
        words = bytearray()
        for pointer in range(pointers):
            at, count = places.get(pointer, (None, 0))
            offset = 0 if at is None else pointers - pointer - 1 + at
            words += bytes(8) if at is None else struct.pack("<II", offset << 2 | 1, count << 3 | 2)
        return struct.pack("<IHH", 0, size // 8, pointers) + data + words + far

    def number(self, name, body, field):
        """A number of an answer that this server wrote."""
        _, first, end, _ = self.structs[name][2][field]
        return int.from_bytes(body[8 + first // 8 : 8 + end // 8], "little")


class Calls:
    """All calls that have a message; the numbers of kinds of objects."""

    def __init__(self):
        self.layouts = Layouts()
        api = describe.load(testing.ROOT / "schema")
        header = (testing.BUILD.folder / "generated/schema/opcodes.h").read_text()
        opcodes = {m[1]: int(m[2]) for m in re.finditer(r"op_(\w+) = (\d+);", header)}
        self.all = [f for f in api.functions if f.wire and f.name in opcodes]
        self.opcode = {f.name: opcodes[f.name] for f in self.all}
        self.by_name = {f.name: f for f in self.all}
        self.of_opcode = {self.opcode[f.name]: f for f in self.all}
        types = (testing.ROOT / "schema/api/types.yml").read_text()
        self.kinds = {
            m[1]: int(m[2])
            for m in re.finditer(r"^  (\w+):\s+\{is: k\w+, number: (\d+)", types, re.M)
        }
        self.sizes = {m[1]: int(m[2]) for m in re.finditer(r"^  (\w+): \{size: (\d+)", types, re.M)}


class Objects:
    """What a session has made, and what it has freed: for a right answer, and for wrong ones."""

    def __init__(self, calls, random):
        self.calls, self.random = calls, random
        self.living = {kind: [] for kind in calls.kinds}
        self.freed = {kind: [] for kind in calls.kinds}
        self.slots, self.memory, self.images, self.amendable = 0, [], [], []

    def new(self, kind):
        """An id that is free: of a new slot, or the next generation of a freed one."""
        if self.freed[kind] and self.random.random() < 0.3:
            return self.freed[kind].pop() + (1 << 26)
        self.slots += 1
        return self.calls.kinds[kind] << 50 | self.slots << 4

    def of(self, kind):
        chance = self.random.random()
        if chance < 0.8 and self.living[kind]:
            return self.random.choice(self.living[kind])
        if chance < 0.9:
            return 0 if kind in ("stream", "mempool") else self.new(kind)
        if chance < 0.95 and self.freed[kind]:
            return self.random.choice(self.freed[kind])
        other = self.random.choice([ids for ids in self.living.values() if ids] or [[1 << 50]])
        return self.random.choice(other)

    def address(self):
        if self.memory and self.random.random() < 0.85:
            base = self.random.choice(self.memory)
            return base + self.random.choice((0, 0, 0, 0, 8, 4096, 65535, 65536))
        return self.random.choice(EDGES) ^ self.random.choice((0, 0, 1 << 40))


class Message:
    """One call with values for its fields."""

    NAMED = {"exec": "graphexec", "base": "graphexec", "graph": "graph", "function": "function"}
    ADDRESSES = re.compile(r"dptr|ptr|addr|address|(dst|src)Device|globalAddress|image|word")

    def __init__(self, function, objects):
        self.function, self.objects, self.random = function, objects, objects.random
        self.wrong = self.random.random() < 0.15  # a value is likely to be
        self.broken = self.random.random() < 0.01  # in its form, which ends the session
        self.values, self.bulk, self.made, self.ended = {}, b"", [], []
        fields = function.request_fields
        self.lengths = {f.length or f.count for f in [*fields, function.bulk_in] if f}
        for field in fields:
            if field.capnp not in ("Data", "Text"):
                self.values[field.name] = self.scalar(field)
        for field in fields:
            if field.capnp in ("Data", "Text"):
                self.values[field.name] = self.bytes_of(field)
        if bulk := function.bulk_in:
            self.bulk = self.bytes_of(bulk)
        self.special()
        self.values = {k: v for k, v in self.values.items() if k in self.layout()[2]}

    @classmethod
    def of(cls, function, objects):
        """One that has been made otherwise."""
        message = cls.__new__(cls)
        message.function, message.objects, message.made, message.ended = function, objects, [], []
        return message

    def layout(self):
        return self.objects.calls.layouts.structs[self.function.params_type]

    def scalar(self, field):
        random, objects = self.random, self.objects
        of_length = field.name in self.lengths or field.name.startswith("num")
        if (self.broken or (self.wrong and not of_length and not field.creates)) and (
            random.random() < 0.3
        ):
            return random.choice(EDGES)
        if of_length:
            return random.choice((0, 1, 1, 2, 8))
        if field.name in ("context", "number"):
            return random.choice((1, 1, 2, 3, 9))
        if field.name in ("maxBytes", "mostBytes"):
            return 65536
        if field.shape == "enum" or field.name in ("kind", "flags", "priority"):
            return random.choice((0, 0, 0, 1, 1, 2, random.randrange(16)))
        kind = field.kind or self.NAMED.get(field.name, "")
        if field.creates in objects.living and field.creates:
            self.made.append((field.creates, objects.new(field.creates)))
            return self.made[-1][1]
        if field.destroys in objects.living and field.destroys and objects.living[field.destroys]:
            self.ended.append((field.destroys, objects.of(field.destroys)))
            return self.ended[-1][1]
        if field.shape == "handle" or (kind in objects.living and field.capnp == "UInt64"):
            return objects.of(kind) if kind in objects.living else 0
        if field.shape == "device":
            return random.choice((0, 0, 0, 0, 1, -1))
        if field.shape == "address" or self.ADDRESSES.fullmatch(field.name):
            return objects.address()
        return random.choice(SMALL)

    def bytes_of(self, field):
        random = self.random
        if field.shape == "cstr":
            return random.choice((b"k", b"v", b"x", b"", b"k" * 300))
        length = field.length or field.count
        if field.shape == "struct":
            size = self.objects.calls.sizes.get(field.base, 64)
            data = self.sample(field.base, size)
        elif length.isdigit():
            data = bytes(int(length))
        else:
            unit = 1 if field.shape == "bytes" else self.size_of(field)
            data = random.choice((bytes, random.randbytes))(self.count(length) * unit)
        if self.broken and random.random() < 0.5:
            half = data[: len(data) // 2]
            data = random.choice((b"", half, data + bytes(8), random.randbytes(len(data))))
        return data[: 1 << 19]

    def count(self, length):
        """How long a list is by the values of other fields."""
        if length == "mem_pool_attribute_bytes(attr)":
            return 4 if self.values["attr"] < 4 else 8
        if not re.fullmatch(r"\w+( [-+*] \d+)?", length):
            return 0
        name, *rest = length.split()
        count = self.values.get(name, 0)
        if rest:
            count = count - int(rest[1]) if rest[0] == "-" else count * int(rest[1])
        return max(0, min(count, 1 << 16))

    def size_of(self, field):
        if field.name.lower().endswith("values"):
            return 8
        base = field.ctype.replace("const ", "").rstrip("*").strip()
        if field.ctype.count("*") > 1 or base in ("cuuint64_t", "CUdeviceptr", "size_t", "void"):
            return 8 if field.ctype.strip() != "void*" else 1
        return self.objects.calls.sizes.get(base, 4)

    @staticmethod
    def sample(kind, size):
        start = {
            "CUmemPoolProps": struct.pack("<IIii", 1, 0, 1, 0),
            "CUmemAllocationProp": struct.pack("<IIii", 1, 0, 1, 0),
            "CUmemLocation": struct.pack("<ii", 1, 0),
            "CUDA_ARRAY_DESCRIPTOR": struct.pack("<QQII", 16, 16, 0x20, 1),
            "CUDA_ARRAY3D_DESCRIPTOR": struct.pack("<QQQIII", 16, 16, 0, 0x20, 1, 0),
            "CUlaunchConfig": struct.pack("<6I", 1, 1, 1, 1, 1, 1),
        }.get(kind, b"")
        return (start + bytes(size))[:size]

    def special(self):
        """Values that belong together, where chance would hardly find them."""
        name, values = self.function.name, self.values
        if self.broken:
            return
        if name == "fgImagePut":
            image = PTX + b"//" + str(self.objects.slots).encode()
            digest = hashlib.sha256(image).digest()
            self.objects.images.append(digest)
            self.objects.slots += 1
            values |= dict(hash=digest, totalBytes=len(image), offset=0, pieceBytes=len(image))
            values["upload"], self.bulk = len(self.objects.images), image
        elif "hash" in values and self.objects.images:
            values["hash"] = self.random.choice(self.objects.images)
            values |= {k: b"" for k in values if k.lower().endswith(("options", "values"))}
            values |= {k: 0 for k in values if k.startswith("num")}
        elif name == "fgImageUploaded":
            values["upload"] = len(self.objects.images)
        elif name in ("fgCopy", "fgCopyWait"):
            size = self.random.choice((1, 64, 4096, 65536))
            first = 1 if name == "fgCopy" else 1 << 8 | 1 << 16
            words = [first, self.objects.address(), size, 1, 1]
            if name == "fgCopy" and self.random.random() < 0.5:
                self.objects.slots += 1
                self.objects.amendable.append((self.objects.slots, size))
                words = [first | 5 << 16, *words[1:], self.objects.slots]
            copy = struct.pack(f"<{len(words)}Q", *words)
            values |= dict(copy=copy, copyBytes=len(copy))
            values |= {k: size for k in ("srcBytes", "dstBytes") if k in values}
            self.bulk = bytes(size) if name == "fgCopy" else b""
        elif name == "fgAmend" and self.objects.amendable:
            values["id"], values["bytes"] = self.random.choice(self.objects.amendable[-8:])
            self.bulk = self.random.randbytes(values["bytes"])
        elif name == "fgLaunch":
            ones = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
            values |= dict.fromkeys(ones, 1) | dict(attributeCount=0, attributes=b"", sharedBytes=0)
            values |= dict(parameterBytes=12, parameters=bytes(12), kind=0)
        elif name.startswith("cuMemAlloc") and "bytesize" in values:
            values["bytesize"] = self.random.choice((1, 4096, 65536, 1 << 20))

    def body(self):
        body = self.objects.calls.layouts.encode(self.function.params_type, self.values)
        if self.broken and self.random.random() < 0.5 and len(body) > 8:
            at = self.random.randrange(len(body))
            body = body[:at] + self.random.randbytes(1) + body[at + 1 :]
        return body

    def answered(self, body):
        """It has succeeded."""
        objects = self.objects
        for kind, number in self.made:
            objects.living[kind].append(number)
        for kind, number in self.ended:
            if number in objects.living[kind]:
                objects.living[kind].remove(number)
                objects.freed[kind].append(number)
        for field in self.function.reply_fields:
            if field.name in ("dptr", "ptr") and field.capnp == "UInt64" and len(body) >= 16:
                results = self.function.results_type
                objects.memory.append(objects.calls.layouts.number(results, body, field.name))
                del objects.memory[:-16]
