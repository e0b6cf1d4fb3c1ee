"""control.capnp: what releases before wrote and read must stay where it was."""

import re

_TOKEN = re.compile(r"[{};]")
_BEGIN = re.compile(r"(?:struct|enum)\s+(\w+)\s*$")
_MEMBER = re.compile(r"\w+\s*@(\d+)\s*(?::\s*(.+))?$", re.S)


def members(text):
    """(path of the struct or enum, ordinal) -> type of the field, "" of an enumerant."""
    text = re.sub(r"#.*", "", text)
    path, found, begin = [], {}, 0
    for token in _TOKEN.finditer(text):
        statement = text[begin : token.start()].strip()
        begin = token.end()
        if token[0] == "{":
            opened = _BEGIN.search(statement)
            path.append(opened[1] if opened else "?")
        elif token[0] == "}":
            path = path[:-1]
        elif member := _MEMBER.match(statement):
            found[".".join(path), int(member[1])] = " ".join((member[2] or "").split())
    return found


def problems(old, new):
    """What the text `new` does not keep of `old`, one line each."""
    now = members(new)
    return [
        f"control.capnp: @{ordinal} of {path} was {kind or 'an enumerant'} and is "
        f"{now.get((path, ordinal), 'gone')} now; fields are only added"
        for (path, ordinal), kind in members(old).items()
        if now.get((path, ordinal)) != kind
    ]
