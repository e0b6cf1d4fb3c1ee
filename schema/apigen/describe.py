"""Reads schema/api/ and judges it: every mistake is a DescriptionError with file and line."""

from pathlib import Path

from . import names, prototype
from .arguments import resolve
from .errors import DescriptionError
from .loader import load_chapter, load_yaml, refuse_doubles
from .model import Api, Chapter, Function
from .nvml import describe as describe_nvml
from .types import Types

CALLS = ("sync", "async", "deferred", "local", "manual", "retired", "unsupported")
WIRES = ("sync", "async", "deferred")
NEEDS = ("nothing", "init", "context", "handle")
KEYS = (
    "fn",
    "call",
    "why",
    "since",
    "needs",
    "twins",
    "aliases",
    "client",
    "server",
    "args",
    "wire",
    "via",
    "header",
    "queues",
    "drains",
    "works",
    "submits",
    "synchronises",
    "handle",
    "session",
    "valid",
    "capture",
    "meaning",
)
# What a success says is done: client/transfer/submission.h, Synchronisation::Of.
SYNCHRONISES = {"some": "kSome", "stream": "kStream", "context": "kContext"}
# What becomes of a call during a capture, in the captured stream and beside it.
CAPTURES = {
    "free": ("free", "free"),
    "own": ("free", "free"),
    "captured": ("captured", "free"),
    "captured-unsafe": ("captured", "unsafe"),
    "unsafe": ("unsafe", "unsafe"),
    "refused": ("refused", "free"),
    "forbidden": ("forbidden", "free"),
    "forbidden-unsafe": ("forbidden", "unsafe"),
    "forbidden-everywhere": ("forbidden", "forbidden"),
    "implicit": ("implicit", "implicit"),
}


def _choice(entry, key, allowed, default):
    value = entry.get(key, default)
    if value not in allowed:
        raise DescriptionError(entry.at(key), f"{key}: '{value}' is none of {', '.join(allowed)}")
    return value


def _flag(entry, key, name):
    if entry.get(key, False) not in (True, False):
        raise DescriptionError(entry.at(key), f"{name}: '{key}' is true or false")
    return bool(entry.get(key))


def _capture(entry, name, call):
    if "capture" in entry and call in ("retired", "unsupported"):
        raise DescriptionError(
            entry.at("capture"), f"{name}: 'capture' is measured when the function is supported"
        )
    return _choice(entry, "capture", CAPTURES, "free")


def _function(entry, chapter, types, internal):
    if not isinstance(entry, dict) or "fn" not in entry:
        raise DescriptionError(
            getattr(entry, "where", chapter), "an entry needs 'fn: CUresult name(...)'"
        )
    where = entry.where
    name, parameters = prototype.parse(entry["fn"], entry.at("fn"))

    def bad(key, message):
        raise DescriptionError(entry.at(key), f"{name}: {message}")

    for key in entry:
        if key not in KEYS:
            bad(key, f"unknown key '{key}'")
    if "call" not in entry:
        bad("", "'call' is missing")
    if name.startswith("fg") != internal:
        bad("", "names of our own calls, and only they, begin with fg")
    call = _choice(entry, "call", CALLS, None)
    client = _choice(entry, "client", ("generated", "manual"), "generated")
    server = _choice(entry, "server", ("generated", "manual"), "generated")
    twins = entry.get("twins", [])
    for twin in twins:
        if twin not in names.PER_THREAD_SUFFIXES:
            bad("twins", f"twin '{twin}' is neither ptsz nor ptds")
    wired = (
        call in WIRES
        or (call == "manual" and ("args" in entry or "wire" in entry))
        or (internal and call != "unsupported")
    )
    wire = (call if call in WIRES else _choice(entry, "wire", WIRES, "sync")) if wired else ""
    if "wire" in entry and call != "manual":
        bad("wire", "'wire' belongs to call: manual")
    if "why" not in entry and (
        call in ("local", "manual", "retired", "unsupported") or "manual" in (client, server)
    ):
        bad("", "a reason is needed ('why')")
    if not wired and ("args" in entry or server == "manual"):
        bad("", f"'args' and 'server' need a message, and call: {call} has none")
    for key in ("queues", "drains", "works", "submits", "synchronises", "meaning"):
        if entry.get(key) and not wired:
            bad(key, f"'{key}' needs a message, and call: {call} has none")
    if "header" in entry and call != "unsupported":
        bad("header", "'header' belongs to call: unsupported")
    valid = entry.get("valid") or {}
    if valid and not wired:
        bad("valid", f"'valid' needs a message, and call: {call} has none")
    meaning = entry.get("meaning", 2)
    if not isinstance(meaning, int) or meaning < 2:
        bad("meaning", "'meaning' counts from 2")
    if "handle" in entry and entry.get("needs") != "handle":
        bad("handle", "'handle' belongs to needs: handle")
    session = entry.get("session", "")
    if session not in ("", "current") and session not in {
        p.name for p in parameters if p.ctype == "CUdeviceptr"
    }:
        bad("session", f"session: '{session}' is no device pointer of it")
    via, maker = entry.get("via", ""), ""
    if isinstance(via, dict):
        via, maker = next(iter(via.items()), ("", ""))
    if via and call != "local":
        bad("via", "'via' belongs to call: local")
    if not internal and not isinstance(entry.get("since"), int):
        bad("", "'since' (version of this ABI, for example 11020) is missing")
    arguments = [resolve(p, entry, name, parameters, types, bool(wired)) for p in parameters]
    for key in entry.get("args") or ():
        if key not in {p.name for p in parameters}:
            raise DescriptionError(entry["args"].at(key), f"{name}: no parameter '{key}'")
    function = Function(
        name=name,
        chapter=chapter,
        where=where,
        arguments=arguments,
        call=call,
        since=entry.get("since", 0),
        why=entry.get("why", ""),
        needs=_choice(entry, "needs", NEEDS, "context"),
        twins=twins,
        aliases=entry.get("aliases") or {},
        via=via,
        maker=maker,
        header=entry.get("header", ""),
        internal=internal,
        client_manual=not internal
        and not via
        and (call in ("local", "manual") or client == "manual"),
        server_manual=server == "manual",
        wire=wire,
        queues=_flag(entry, "queues", name),
        drains=_flag(entry, "drains", name),
        works=_flag(entry, "works", name),
        several=_flag(entry, "submits", name),
        synchronises=_choice(entry, "synchronises", ("", *SYNCHRONISES), ""),
        handle=entry.get("handle", ""),
        session=session,
        valid=dict(valid),
        capture=_capture(entry, name, call),
        meaning=entry.get("meaning", 0),
    )
    if function.needs == "handle" and not function.handle_expression:
        bad("", "needs: handle, but there is none")
    _check_wire(function)
    return function


def _check_wire(function):
    if not function.wire:
        return

    def bad(message):
        raise DescriptionError(function.where, f"{function.name}: {message}")

    for key in ("queues", "works"):
        if getattr(function, key) and function.stream is None:
            bad(f"'{key}' needs one stream")
    if function.synchronises and function.wire != "sync":
        bad(f"'synchronises' needs an answer, and call: {function.wire} waits for none")
    if function.synchronises == "stream" and function.stream is None:
        bad("'synchronises: stream' needs one stream")
    outputs = function.reply_fields or function.bulk_out
    if function.wire != "sync" and outputs:
        bad(f"call: {function.wire} cannot bring outputs back")
    if function.wire == "deferred" and not function.created:
        bad("call: deferred needs a created handle")
    bulk = [a.direction for a in function.arguments if a.bulk]
    if len(bulk) != len(set(bulk)):
        bad("at most one bulk input and one bulk output")
    if function.internal and any(
        a.members or (a.direction != "in" and a.locations) for a in function.arguments
    ):
        bad("an internal call has no arrays in structs, and brings back no location")
    if not function.server_manual and any(
        a.bulk or (a.shape == "cstr" and a.direction != "in") for a in function.arguments
    ):
        bad("bulk and text outputs need 'server: manual'")


def _chapter(path, root, types, internal):
    title, entries = load_chapter(path, root)
    return Chapter(path.stem, title, [_function(e, path.stem, types, internal) for e in entries])


def _check_vias(api):
    for f in api.functions:
        if not f.via:
            continue
        target = api.function(f.via)
        if target is None or not target.client_manual:
            raise DescriptionError(f.where, f"{f.name}: via '{f.via}', which is not by hand")
        if f.values_for(target)[1] and not f.maker:
            raise DescriptionError(
                f.where, f"{f.name}: via '{f.via}', which must have the same parameters, or more"
            )


def _check_symbols(api):
    owner = {}
    for f in api.functions:
        for symbol, _ in f.symbols:
            if symbol in owner:
                raise DescriptionError(
                    f.where, f"symbol {symbol} already belongs to {owner[symbol]}"
                )
            owner[symbol] = f.name
    known = set(api.symbols)
    for symbol in owner:
        if symbol not in known:
            raise DescriptionError(api.function(symbol).where, f"{symbol} is not in symbols.txt")
    missing = sorted(known - set(owner))
    if missing:
        raise DescriptionError(
            "api/symbols.txt",
            f"{len(missing)} symbols are described nowhere: {', '.join(missing[:8])}",
        )


def load(schema_dir, complete=True):
    """The Api in `schema_dir`/api. complete: every symbol of symbols.txt must be described."""
    root = Path(schema_dir)
    api_dir = root / "api"
    types = Types(api_dir / "types.yml", root)
    chapters = [_chapter(p, root, types, False) for p in sorted((api_dir / "driver").glob("*.yml"))]
    if (api_dir / "internal.yml").exists():
        chapters.append(_chapter(api_dir / "internal.yml", root, types, True))
    listed = (api_dir / "symbols.txt").read_text(encoding="utf-8").split() if complete else []
    results = load_yaml(api_dir / "results.yml", root) if (api_dir / "results.yml").exists() else {}
    api = Api(chapters, types, listed, results, describe_nvml.load(root))
    refuse_doubles(api.functions)
    _check_vias(api)
    if complete:
        _check_symbols(api)
    return api
