"""What is committed of NVML: opcodes, the version script, the coverage page."""

from .. import registry
from . import layout

FIRST, LAST = 4096, 8191
REGISTRY = "schema/api/nvml_registry.yml"
REGISTRY_HEADER = """\
# Opcodes of NVML's functions in management sessions: function -> number and fingerprint of its
# message. Append-only, as api/registry.yml is; NAME@2 is a function whose message has changed.
"""
_CLASSES = {
    "sync": "asked of the server's NVML",
    "local": "answered in the client",
    "manual": "hand-written, at one end or both",
    "denied": "a setter: refused with `NVML_ERROR_NO_PERMISSION`",
    "unsupported": "refused with `NVML_ERROR_NOT_SUPPORTED`, and named once",
}


def load_registry(schema_dir):
    """name -> Entry of the committed registry."""
    path = schema_dir / "api" / "nvml_registry.yml"
    return registry.load(path, schema_dir, FIRST, LAST) if path.exists() else {}


def assign(library, entries, kept=None):
    """Gives every function with a message its opcode; the registry as it should be."""
    functions = [(f, layout.fingerprint(f)) for f in library.functions if f.wire]
    return registry.assign_numbers(functions, entries, entries if kept is None else kept, FIRST)


def version_script(symbols):
    """For ELF: a library that exports exactly these."""
    return (
        "# Made by `apigen generate`; do not edit.\n{\n  global:\n"
        + "".join(f"    {s};\n" for s in sorted(symbols))
        + "  local: *;\n};\n"
    )


def coverage(library):
    """docs/coverage-nvml.md."""
    functions = library.functions
    supported = sum(f.supported for f in functions)
    denied = sum(f.call == "denied" for f in functions)
    out = [
        "# Coverage of NVML",
        "",
        "Made by `apigen generate` from `schema/api/nvml/`; do not edit.",
        "What is answered by whom: [NVML](nvml.md).",
        "",
        f"**{supported} of {len(functions)}** exported symbols are answered, {denied} are setters, "
        "which are refused.",
        "",
        "| class | meaning | symbols |",
        "|---|---|---|",
    ]
    for call, text in _CLASSES.items():
        out.append(f"| {call} | {text} | {sum(f.call == call for f in functions)} |")
    for c in library.chapters:
        out += ["", f"## {c.title}", "", "| function | class | why |", "|---|---|---|"]
        out += [f"| {f.name} | {f.call} | {f.why} |" for f in c.functions]
    return "\n".join(out) + "\n"


def all_contracts(library):
    """path relative to the project root -> text; nothing where nothing is described."""
    if not library.functions:
        return {}
    return {
        "schema/generated/nvml_exports.map": version_script(f.name for f in library.functions),
        "docs/coverage-nvml.md": coverage(library),
    }
