"""`apigen show nvmlDeviceGetName`: everything that is made for one function of NVML."""

import re

from ..pieces import pieces
from . import manual


def text(f, files):
    """`files`: everything generated."""
    cached = "   cached" if f.cache else ""
    out = [
        f"{f.name}  ({f.where})",
        f"  call: {f.call}   opcode: {f.opcode or '-'}{cached}",
    ]
    if f.why:
        out.append(f"  why: {f.why}")
    if f.client_manual:
        out.append("  client/nvml/manual/: " + manual.prototype(f, "client"))
    if f.server_manual:
        out.append("  server/nvml/manual/: " + manual.prototype(f, "server"))
    n = re.escape(f.name)
    patterns = [
        rf"^nvmlReturn_t call_{n}\(.*\{{$",
        rf"^__attribute__.* {n}\(",
        rf"^nvmlReturn_t serve_{n}\(.*\{{$",
        rf"^  nvmlReturn_t \(\*{n}\)",
        rf"^ +\{{.*&serve_{n}\}},$",
        rf"^inline constexpr uint16_t op_{n} ",
    ]
    for where, piece in pieces(files, patterns):
        out += ["", f"--- generated/{where}", piece]
    return "\n".join(out)
