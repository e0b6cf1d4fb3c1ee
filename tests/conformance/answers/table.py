"""The table of conformance: every supported function by every result that cuda.h documents for it.

    table.py make      # writes docs/conformance.md
    table.py check     # the test: the page is current, and untestable.yml has nothing too much
    table.py missing   # lists the cells that have no answer of a real driver

documented.txt has the results, h200-580.txt what a real driver answered; the tests
conformance_answers and conformance_captured_calls compare the simulated driver and fargpu with it.
A cell is seen (a real driver gave the result, in the case that is named), otherwise (the case that
asks for it got another answer), untestable (untestable.yml says why) or missing (no real driver has
been asked; untestable.yml lists these, too)."""

import fnmatch
import pathlib
import re
import sys

import answers
import documented
import yaml
from answers import LEFT_OUT

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "conformance.md"
UNTESTABLE = HERE / "untestable.yml"
PROGRAMS = ("tests/conformance", "tests/orderings", "tests/e2e/programs", "examples")

UNKNOWN = "nothing is known"  # of a missing cell that untestable.yml does not list
VARIES = "varying"  # answers that differed between the runs

# What a case that asks for a result is called.
ASKED_BY = {
    "NOT_INITIALIZED": r"before cuInit$",
    "INVALID_CONTEXT": r"(without a context|\w*[cC](on)?te?x(t)?=(0|garbage|destroyed)$)",
    "INVALID_HANDLE": r"(\w+=(garbage|destroyed|0)|handle of zeros)$",
    "INVALID_VALUE": r"\S+=(null|0|-1|garbage|destroyed|0x)",
    "INVALID_DEVICE": r"\w*[dD]ev\w*=(-1|64)$|\S*location\S*=-1$|.*(of|by|on) no device$",
    "CONTEXT_IS_DESTROYED": r"(in a destroyed context|\w+=destroyed)$",
    "NO_BINARY_FOR_GPU": r".*image [89]$|machine code",
    "INVALID_PTX": r".*image [345]$",
    "UNSUPPORTED_PTX_VERSION": r".*image 6$",
    "INVALID_IMAGE": r".*image [012]$",
    "NOT_FOUND": r"\w+ (unknown|empty|missing)$|hfunc enumerated$|.*image \d+$",
    "FUNCTION_NOT_LOADED": r"hfunc enumerated$",
    "LAUNCH_FAILED": r"after a kernel that failed$",
    "LAUNCH_OUT_OF_RESOURCES": r"too many registers$",
    "PRIMARY_CONTEXT_ACTIVE": r"retained",
    "ILLEGAL_STATE": r"ptr mapped$",
    "INVALID_RESOURCE_CONFIGURATION": r"(resources of zeros|the same twice)$",
    "NOT_READY": r"\w+ busy$",
    "OUT_OF_MEMORY": r".*([TPE]iB|address space|image 10)$",
    "MAP_FAILED": r"(handle of zeros|\w+=(0|garbage|destroyed))$",
    "LOSSY_QUERY": r".*an edge with data",
}


def short(answer):
    """An answer's result, without CUDA_ and ERROR_."""
    return re.split(r"[ ,]", answer)[0].removeprefix("CUDA_").removeprefix("ERROR_")


class Known:
    """What a real driver answered: function -> [(case, result)], in the order of the cases."""

    def __init__(self):
        self.answers = {}
        native = answers.read_answers(answers.unpack(answers.ORACLE.read_text().splitlines()))
        lines = answers.ORACLE.read_text().splitlines()
        cases = list(native.items())
        cases += [(x.removeprefix(LEFT_OUT), VARIES) for x in lines if x.startswith(LEFT_OUT)]
        for case, answer in cases:
            function, _, name = case.partition(" ")
            self.answers.setdefault(function, []).append((name, short(answer)))
        for function, given in answers.read_captures().items():
            for kind, answer in zip(answers.KINDS, given, strict=True):
                self.answers.setdefault(function, []).append((kind, short(answer)))

    def seen(self, function, result):
        """The first case that had the result, '' if none had; the right call comes first."""
        cases = [name for name, found in self.answers.get(function, []) if found == result]
        return "right" if "right" in cases else (cases or [""])[0]

    def otherwise(self, function, result):
        """'result (case)' of the cases that ask for a result and got others."""
        asked = re.compile(ASKED_BY.get(result, r"$^"))
        found = {}
        for name, given in self.answers.get(function, []):
            if asked.match(name):
                found.setdefault(given, name)
        return [f"{given} ({name})" for given, name in found.items()]


class Untestable:
    def __init__(self):
        self.groups = yaml.safe_load(UNTESTABLE.read_text())
        self.used = {group["why"]: 0 for group in self.groups}

    def find(self, function, result):
        """The entry that explains a cell, None if none does."""
        for group in self.groups:
            patterns = group.get("functions", ["*"])
            if result in group["results"] and any(fnmatch.fnmatch(function, p) for p in patterns):
                self.used[group["why"]] += 1
                return group
        return None


def programs():
    """Symbol -> programs of the tests that call it, by its name or, call("cuX", ...), by its
    symbol's."""
    found, names, symbols = {}, documented.names(), documented.read()
    by_name = re.compile(r"\b(cu[A-Z]\w+)\s*\(")
    by_symbol = re.compile(r"\bcall\(\s*\"(cu[A-Z]\w+)\"")
    for folder in PROGRAMS:
        for source in sorted((ROOT / folder).rglob("*.c*")):
            if source.suffix not in (".cc", ".cu") or "answers" in source.parts:
                continue
            text = source.read_text()
            called = {names[name] for name in by_name.findall(text) if name in names}
            called |= {symbol for symbol in by_symbol.findall(text) if symbol in symbols}
            for symbol in called:
                found.setdefault(symbol, []).append(source.stem)
    return found


class Table:
    def __init__(self):
        self.known, self.untestable = Known(), Untestable()
        self.counts = dict.fromkeys(KINDS, 0)
        self.rows = {
            function: [self.cell(function, result) for result in results]
            for function, results in documented.read().items()
        }

    def cell(self, function, result):
        """(kind, result, what is known of it)."""
        kind, text = "missing", UNKNOWN
        if case := self.known.seen(function, result):
            kind, text = "seen", case
        elif others := self.known.otherwise(function, result):
            kind, text = "otherwise", others[0]
        elif group := self.untestable.find(function, result):
            kind, text = "missing" if group.get("to_be_asked") else "untestable", group["why"]
        self.counts[kind] += 1
        return kind, result, text

    def missing(self):
        """(function and result, why) of the missing cells."""
        return [
            (f"{function} {result}", text)
            for function, cells in self.rows.items()
            for kind, result, text in cells
            if kind == "missing"
        ]


KINDS = {
    "seen": "a real driver has given the result, in the case that stands behind it",
    "otherwise": "the case for this result has another answer, from the real driver as well",
    "untestable": "no test can produce it, for the reason with this number below",
    "missing": "not recorded from a real driver yet, see below",
}

HEAD = """\
# Conformance: every function by every documented result

Made by `tests/conformance/answers/table.py make`; do not edit.

A cell is one result that `cuda.h` of CUDA 13.0 documents for one supported function. The cases are
those of `tests/conformance/answers` ([testing](testing.md#answers-to-wrong-calls)). Continuous
integration compares recorded answers of a real driver with those of the simulated driver, and of
fargpu over shm and tcp. `scripts/gpu-suite --conformance` compares on a real GPU."""

DIFFERENCES = """\
## Where fargpu or the simulated GPU answers otherwise

All known differences from the real driver (`tests/conformance/answers/differences.yml`); any other
difference fails the tests. "direct" is the simulated driver alone."""

PROGRAMS_DIFFER = """\
Conformance programs (`tests/conformance/*.cc`) print the same natively, on the simulated driver and
through fargpu, except these (`tests/conformance/natively.yml`):"""

ROWS = """\
## All functions

Names of results are without `CUDA_ERROR_`. The last column names test programs that check the
effect of the function; for functions without one only the returned values are checked."""


def cells_of(cells, wanted, form):
    texts = [form(result, text) for kind, result, text in cells if kind == wanted]
    return ", ".join(texts).replace("|", "\\|")


def page():
    table = Table()
    whys = [group["why"] for group in table.untestable.groups]

    def numbered(result, why):
        return f"{result} {whys.index(why) + 1 if why in whys else ''}".rstrip()

    out = [HEAD, "", f"{len(table.rows)} functions, {sum(table.counts.values())} cells:", ""]
    out += ["| cells | | |", "|---|---|---|"]
    out += [f"| {table.counts[kind]} | {kind} | {text} |" for kind, text in KINDS.items()]
    out += ["", "| | reason for an untestable or missing result | cells |", "|---|---|---|"]
    for number, why in enumerate(whys, 1):
        out.append(f"| {number} | {why} | {table.untestable.used[why]} |")
    out += ["", DIFFERENCES, "", "| why | where | cases |", "|---|---|---|"]
    for group in yaml.safe_load(answers.DIFFERENCES.read_text()):
        cases = ", ".join(f"`{case}`" for case in group["cases"]).replace("|", "\\|")
        where = " ".join(group.get("where", ["everywhere"]))
        if group.get("simulated"):
            where += ", simulated GPU"
        out.append(f"| {group['why']} | {where} | {cases} |")
    out += ["", PROGRAMS_DIFFER, "", "| program | why |", "|---|---|"]
    for group in yaml.safe_load(answers.NATIVELY.read_text()):
        out.append(f"| `{group['program']}` | {group['why']} |")
    out += ["", ROWS, "", "| function | seen | otherwise | untestable | missing | programs |"]
    out.append("|---|---|---|---|---|---|")
    callers = programs()
    for function, cells in table.rows.items():
        columns = (
            cells_of(cells, "seen", lambda result, case: f"{result} ({case})"),
            cells_of(cells, "otherwise", lambda result, text: f"{result}: {text}"),
            cells_of(cells, "untestable", numbered),
            cells_of(cells, "missing", numbered),
            ", ".join(callers.get(function, [])[:4]),
        )
        out.append(f"| {function} | {' | '.join(columns)} |")
    return "\n".join(out) + "\n", table


def check(text, table):
    unasked = answers.read_unasked()
    wrong = [
        f"missing: {cell}"
        for cell, why in table.missing()
        if why == UNKNOWN and cell.split()[0] not in unasked
    ]
    for name in sorted(table.rows.keys() ^ {f.name for f in answers.supported_functions()}):
        wrong.append(f"{documented.DOCUMENTED.name} is old: {name}; documented.py")
    unused = [why for why, count in table.untestable.used.items() if count == 0]
    wrong += [f"{UNTESTABLE.name}: explains nothing: {why}" for why in unused]
    if not PAGE.exists() or PAGE.read_text() != text:
        wrong.append(f"{PAGE.relative_to(ROOT)} is old: table.py make")
    print("\n".join(wrong) if wrong else f"{table.counts}")
    return 1 if wrong else 0


def main():
    text, table = page()
    if sys.argv[1] == "check":
        return check(text, table)
    if sys.argv[1] == "make":
        PAGE.write_text(text)
    else:
        print("\n".join(f"{cell}: {why}" for cell, why in table.missing()))
    print(table.counts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
