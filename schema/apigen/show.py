"""`apigen show cuMemAlloc_v2`: everything that is made for one function."""

import re

from . import contracts, generate, manual
from .errors import DescriptionError
from .nvml import show as nvml
from .pieces import pieces


def text(api, schema_dir, name):
    f = api.function(name)
    if f is None and api.nvml is not None and api.nvml.function(name):
        return nvml.text(api.nvml.function(name), generate.cpp(api, schema_dir))
    if f is None:
        raise DescriptionError("show", f"no function '{name}' is described")
    files = generate.cpp(api, schema_dir)
    out = [
        f"{f.name}  ({f.where})",
        f"  call: {f.call}   opcode: {f.opcode or '-'}   wire: {f.wire or '-'}   "
        f"needs: {f.needs}   since: {f.since}",
    ]
    if f.why:
        out.append(f"  why: {f.why}")
    if f.symbols:
        out.append("  exported: " + " ".join(s for s, _ in f.symbols))
    if f.client_manual:
        out.append("  client/manual/: " + manual.prototype(f, "client"))
    if f.wire and f.server_manual:
        out.append("  server/manual/: " + manual.prototype(f, "server"))
    if f.wire:
        chapter = next(c for c in api.chapters if c.name == f.chapter)
        messages = {f"schema/generated/{f.chapter}.capnp": contracts.capnp(chapter, api.types)}
        for where, piece in pieces(
            messages, [rf"^struct {f.params_type} ", rf"^struct {f.results_type} "]
        ):
            out += ["", f"--- {where}", piece]
    n = re.escape(f.name)
    symbols = "|".join(re.escape(s) for s, _ in f.symbols) or n
    patterns = [
        rf"^CUresult (call_)?{n}\(",
        rf"^CUresult enter_{n}\(",
        rf"^__attribute__.* CUresult ({symbols})\(",
        rf"^static_assert.*&::({symbols})\)",
        rf"^Status dispatch_{n}\(",
        rf"^  CUresult \(\*{n}\)",
        rf"^ +\{{.*\"({symbols})\".*\}},$",
        rf"^inline constexpr uint16_t op_{n} ",
    ]
    for where, piece in pieces(files, patterns):
        out += ["", f"--- generated/{where}", piece]
    return "\n".join(out)
