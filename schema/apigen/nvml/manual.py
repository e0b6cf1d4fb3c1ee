"""The hand-written halves of NVML: which there must be, and which there are."""

import re
from pathlib import Path

from ..manual import superfluous

_DEFINITION = re.compile(r"^(?:nvmlReturn_t|const char\*)\s+manual_(\w+)\s*\([^;{]*\)\s*\{", re.M)
FOLDERS = {"client": "client/nvml/manual", "server": "server/nvml/manual"}


def expected(library, side):
    """Functions whose `side` ("client" or "server") half is written by hand, in order."""
    if side == "client":
        return [f for f in library.functions if f.client_manual]
    return [f for f in library.functions if f.server_manual]


def prototype(f, side):
    """The declaration of one half."""
    if side == "client":
        return f"{f.returns.replace(' *', '*')} manual_{f.name}({f.declaration});"
    more = f", {f.declaration}" if f.arguments else ""
    return f"nvmlReturn_t manual_{f.name}(Desk& desk{more});"


def problems(library, root):
    """One line per missing, extra or doubled half."""
    lines = []
    for side, folder in FOLDERS.items():
        want = {f.name for f in expected(library, side)}
        have = {}
        for path in sorted((Path(root) / folder).rglob("*.cc")):
            for match in _DEFINITION.finditer(path.read_text(encoding="utf-8")):
                have.setdefault(match[1], []).append(path)
        lines += [f"{folder}: manual_{n} is missing" for n in sorted(want - set(have))]
        lines += superfluous(want, have, side)
    return lines
