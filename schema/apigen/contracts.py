"""What is committed: one .capnp per chapter, the version script, the coverage page."""

import hashlib

from . import names
from .nvml import contracts as nvml_contracts

_HEADER = """# Messages of {title}. Made by `apigen generate` from {source}; do not edit.
@{id:#018x};

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");
"""


def _file_id(chapter):
    value = int.from_bytes(hashlib.sha256(b"fargpu " + chapter.encode()).digest()[:8], "little")
    return value | (1 << 63)


def _struct(name, fields, types):
    if not fields:
        return f"struct {name} {{}}\n"
    lines = [f"struct {name} {{"]
    for ordinal, a in enumerate(fields):
        note = f"  # {a.ctype}" if a.capnp not in ("Text",) else ""
        lines.append(f"  {names.field(a.name)} @{ordinal} :{a.capnp};{note}")
    lines.append("}")
    return "\n".join(lines) + "\n"


def capnp(chapter, types):
    """The text of <chapter>.capnp."""
    source = "api/internal.yml" if chapter.internal else f"api/driver/{chapter.name}.yml"
    parts = [
        _HEADER.format(
            title=chapter.title[:1].lower() + chapter.title[1:],
            source=source,
            id=_file_id(chapter.name),
        )
    ]
    for f in chapter.messages:
        parts.append(_struct(f.params_type, f.request_fields, types))
        if f.reply_fields:
            parts.append(_struct(f.results_type, f.reply_fields, types))
    return "\n".join(parts)


def exports_map(api):
    """ELF version script of libcuda.so.1: exactly the symbols of a driver (api/symbols.txt)."""
    return nvml_contracts.version_script(s for f in api.functions for s, _ in f.symbols)


def coverage(api):
    """docs/coverage.md."""
    functions = [f for f in api.functions if not f.internal and not f.header]
    elsewhere = [f for f in api.functions if f.header not in ("", "none")]
    total = sum(len(f.symbols) for f in functions)
    supported = sum(len(f.symbols) for f in functions if f.supported or f.retired)
    out = [
        "# Coverage of the CUDA driver API",
        "",
        "Made by `apigen generate` from `schema/api/`; do not edit. Version of the API: 13.0.",
        "",
        f"**{supported} of {total}** symbols of cuda.h are supported; the others, and the "
        f"{sum(len(f.symbols) for f in elsewhere)} of "
        f"{', '.join(sorted({f.header for f in elsewhere}))}, log their name once and return "
        "`CUDA_ERROR_NOT_SUPPORTED`.",
        "What each answers, and where that differs from the real driver: "
        "[conformance](conformance.md).",
        "",
        "| class | meaning | symbols |",
        "|---|---|---|",
    ]
    meaning = {
        "sync": "sent, waits for the reply",
        "async": "sent, an error comes with a later call",
        "deferred": "creation with a client-made id, returns at once",
        "local": "answered in the client",
        "manual": "hand-written client half with a wire message",
        "retired": "refused with the driver's error, CUDA_ERROR_INVALID_CONTEXT",
        "unsupported": "refused",
    }
    for call, text in meaning.items():
        out.append(
            f"| {call} | {text} | {sum(len(f.symbols) for f in functions if f.call == call)} |"
        )
    out += ["", "| chapter | supported | symbols |", "|---|---|---|"]
    chapters = [c for c in api.chapters if not c.internal]
    for c in chapters:
        have = sum(len(f.symbols) for f in c.functions if f.supported or f.retired)
        out.append(
            f"| [{c.title}](#{c.name}) | {have} | {sum(len(f.symbols) for f in c.functions)} |"
        )
    for c in chapters:
        out += [
            "",
            f'<a id="{c.name}"></a>',
            "",
            f"## {c.title}",
            "",
            "| function | further symbols | class | why |",
            "|---|---|---|---|",
        ]
        for f in c.functions:
            others = " ".join(s for s, _ in f.symbols if s != f.name)
            out.append(f"| {f.name} | {others} | {f.call} | {f.why} |")
    return "\n".join(out) + "\n"


def all_contracts(api):
    """path relative to the project root -> text."""
    result = {
        f"schema/generated/{c.name}.capnp": capnp(c, api.types) for c in api.chapters if c.messages
    }
    result["schema/generated/exports.map"] = exports_map(api)
    result["docs/coverage.md"] = coverage(api)
    return result | nvml_contracts.all_contracts(api.nvml)
