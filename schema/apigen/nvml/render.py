"""C++ of NVML from the templates nvml_*.j2, which lie with those of their ends."""

from . import cpp, manual, render_tests


def add(library, entries, put):
    """Adds the files. entries: the registry; put: as in apigen/render.py."""
    names = {entry.opcode: name.partition("@")[0] for name, entry in entries.items()}
    wired = [f for f in library.functions if f.wire]
    put(
        "schema/nvml_opcodes.h",
        "nvml_opcodes.h.j2",
        functions=sorted(wired, key=lambda f: f.opcode),
    )
    put(
        "schema/nvml_opcodes.cc",
        "nvml_opcodes.cc.j2",
        names=sorted(names.items()),
        messages=sorted(f.opcode for f in wired),
    )
    for chapter in library.chapters:
        put(
            f"client/nvml/exports/{chapter.name}.cc",
            "exports.cc.j2",
            chapter=chapter,
            refusal=cpp.refusal,
        )
        generated = chapter.messages
        if generated:
            put(
                f"client/nvml/{chapter.name}.cc",
                "calls.cc.j2",
                chapter=chapter,
                body=cpp.client,
            )
            put(
                f"server/nvml/serve/{chapter.name}.cc",
                "serve.cc.j2",
                chapter=chapter,
                functions=generated,
                body=cpp.server,
            )
    put(
        "client/nvml/calls.h",
        "calls.h.j2",
        functions=wired,
        by_hand=[manual.prototype(f, "client") for f in manual.expected(library, "client")],
    )
    structs = library.structs
    sent = {t for f in wired for a in f.arguments for t in a.repaired}
    put(
        "client/nvml/repair.h",
        "repair.h.j2",
        types=structs.repaired(sent) if structs else [],
        repairs=structs.repairs if structs else None,
    )
    put("server/nvml/table.h", "table.h.j2", functions=library.functions)
    put(
        "server/nvml/serve.h",
        "serve.h.j2",
        functions=wired,
        by_hand=[manual.prototype(f, "server") for f in manual.expected(library, "server")],
    )
    put(
        "server/nvml/serve/table.cc",
        "serve_table.cc.j2",
        rows=sorted(wired, key=lambda f: f.opcode),
        functions=library.functions,
    )
    render_tests.add(library, put)
