"""The hand-written halves: which there must be, and which there are."""

import re
from pathlib import Path

_DEFINITION = re.compile(
    r"^(?:::)?(?:fargpu::)?(?:CUresult|Status|::fargpu::Status)\s+"
    r"(?:client::|server::)?manual_(\w+)\s*\(",
    re.M,
)


def expected(api, side):
    """Functions whose `side` ("client" or "server") half is written by hand, in order."""
    if side == "client":
        return [f for f in api.functions if f.client_manual]
    return [f for f in api.functions if f.wire and f.server_manual]


def prototype(function, side):
    if side == "client":
        return f"CUresult manual_{function.name}({function.declaration});"
    return f"Status manual_{function.name}(Worker& worker, const Request& request);"


def found(folder):
    """name -> files that define manual_<name> under `folder`."""
    result = {}
    for path in sorted(Path(folder).rglob("*.cc")):
        text = path.read_text(encoding="utf-8")
        for match in _DEFINITION.finditer(text):
            # A declaration ends in ';', a definition goes on with '{'.
            rest = text[match.end() :]
            depth, i = 1, 0
            while depth and i < len(rest):
                depth += {"(": 1, ")": -1}.get(rest[i], 0)
                i += 1
            if rest[i:].lstrip().startswith("{"):
                result.setdefault(match[1], []).append(path)
    return result


def problems(api, side, folder):
    """One line per missing, extra or doubled hand-written half."""
    want = {f.name for f in expected(api, side)}
    have = found(folder)
    lines = [
        f"{side}: manual_{n} is missing (described in api/driver/{api.function(n).chapter}.yml)"
        for n in sorted(want - set(have))
    ]
    return lines + superfluous(want, have, side)


def superfluous(want, have, side):
    """One line per half that is extra or doubled. `have`: name -> files that define it."""
    lines = [
        f"{have[n][0]}: manual_{n} is not described as manual on the {side} side"
        for n in sorted(set(have) - want)
    ]
    lines += [
        f"{files[1]}: manual_{n} is already defined in {files[0]}"
        for n, files in sorted(have.items())
        if len(files) > 1
    ]
    return lines
