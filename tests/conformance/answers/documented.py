"""documented.py CUDA_INCLUDE: writes documented.txt, which results cuda.h and cudaProfiler.h
document for each supported function. Run it when functions or the toolkit change; the file is
committed, so that nothing else needs the headers' comments."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENTED = HERE / "documented.txt"
HEADERS = ("cuda.h", "cudaProfiler.h")
HEAD = """\
# What cuda.h of CUDA 13.0 documents that functions return; made by documented.py, not edited.
# A line: the symbol, the name that programs call it by where that is another one, the results
# without CUDA_ and ERROR_. A version of a function that the header no longer documents has what
# the documented one has.
"""
DECLARED = re.compile(
    r"/\*\*((?:(?!\*/).)*)\*/\s*(?:__CUDA_DEPRECATED\s+)?CUresult\s+CUDAAPI\s+(cu\w+)\s*\(", re.S
)
RETURNS = re.compile(r"\\returns?\b(.*?)(?:\\notefnerr|\\note\b|\\sa\b|\\par\b|$)", re.S)
MACRO = re.compile(r"^\s*#\s*define\s+(cu\w+)\s+(?:__CUDA_API_PT(?:DS|SZ)\()?(cu\w+)\)?\s*$", re.M)


def read_headers(include):
    """Name in the header -> results, and name -> symbol where a macro makes another one of it."""
    text = "".join((include / name).read_text() for name in HEADERS)
    results = {}
    for body, name in DECLARED.findall(text):
        returned = RETURNS.search(body)
        found = re.findall(r"CUDA_(SUCCESS|ERROR_\w+)", returned.group(1)) if returned else []
        results.setdefault(name, list(dict.fromkeys(x.removeprefix("ERROR_") for x in found)))
    return results, dict(MACRO.findall(text))


def lines(api, results, symbols):
    named = {symbol: name for name, symbol in symbols.items() if name in results}
    for f in api.functions:
        if f.internal or f.header or not f.supported:
            continue
        name = f.name if f.name in results and f.name not in symbols else None
        called = named.get(f.name, name)
        documented = called or re.sub(r"_v\d+$", "", f.name)
        also = f" {called}" if called not in (None, f.name) else ""
        yield f"{f.name}{also}: {' '.join(results.get(documented, []))}".rstrip()


def read():
    """Symbol -> results."""
    found = {}
    for line in DOCUMENTED.read_text().splitlines():
        if not line.startswith("#"):
            names, _, results = line.partition(":")
            found[names.split()[0]] = results.split()
    return found


def names():
    """Name in programs -> symbol."""
    found = {}
    for line in DOCUMENTED.read_text().splitlines():
        if not line.startswith("#"):
            words = line.partition(":")[0].split()
            found[words[-1]] = words[0]
    return found


def main():
    sys.path.insert(0, str(HERE.parents[2] / "schema"))
    from apigen import describe

    api = describe.load(HERE.parents[2] / "schema")
    text = "\n".join(lines(api, *read_headers(pathlib.Path(sys.argv[1]))))
    DOCUMENTED.write_text(HEAD + text + "\n")


if __name__ == "__main__":
    main()
