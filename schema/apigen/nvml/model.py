"""The description of NVML as objects: Library -> Chapter (../model.py) -> Function -> Argument.

Made by describe.py; judged there, only read elsewhere.
"""

from dataclasses import dataclass, field

from ..prototype import Signature

# What travels as its place among the session's devices. No other handle travels.
DEVICE = "nvmlDevice_t"


@dataclass
class Argument:
    """One parameter with what the description says about it.

    shape: value, device, struct, array, cstr, or opaque (no message may hold it). direction: in,
    out or inout. length and count are C expressions over the parameters. versions: struct type ->
    number, of a struct whose first word says which one it is. inputs: struct type -> the fields
    that the function reads, of one that goes both ways. repaired: those of its types in which a
    server's answer may hold what a caller must not get (structs.py)."""

    name: str
    ctype: str
    base: str
    shape: str
    direction: str = "in"
    length: str = ""
    count: str = ""
    optional: bool = False
    versions: dict = field(default_factory=dict)
    inputs: dict = field(default_factory=dict)
    repaired: tuple = ()

    @property
    def declaration(self):
        return f"{self.ctype} {self.name}"


@dataclass
class Function(Signature):
    """One exported function."""

    name: str
    chapter: str
    where: str
    returns: str
    arguments: list
    call: str
    why: str = ""
    via: str = ""  # of a hand-written client half: whose message it uses
    wire: bool = False  # there is a message
    client_manual: bool = False
    server_manual: bool = False
    cache: bool = False
    meaning: int = 0
    opcode: int = 0

    @property
    def supported(self):
        return self.call not in ("unsupported", "denied")


@dataclass
class Library:
    """The whole description."""

    chapters: list
    structs: object = None  # structs.Structs

    @property
    def functions(self):
        return [f for chapter in self.chapters for f in chapter.functions]

    def function(self, name):
        return next((f for f in self.functions if f.name == name), None)
