"""The answers of a real driver, and how those of ours compare with them.

    answers.py compare BUILD [direct|shm|tcp]...   # the test
    answers.py record FIRST SECOND HEAD            # makes h200-580.txt from two native runs
    answers.py captures FIRST SECOND HEAD          # makes captures-h200-580.txt, likewise
    answers.py add FIRST SECOND CAPTURES HEAD      # two native runs of some functions, and one of
                                                   # `--captures`: these functions' lines, anew
    answers.py crashes                             # for --leave-out: what no driver survives
    answers.py classes                             # the test of `capture` in the description
    answers.py captured BUILD [direct|shm|tcp]...  # the test of calls during captures

A native run is `answers --jobs 12 > FILE` on a machine with the real driver, for captures
`answers --captures --jobs 12 > FILE`; HEAD holds lines for the file's top (date, GPU and driver,
system). Cases that the two runs answer differently are left
out. differences.yml lists where ours differ, and why; a difference that is not listed fails the
test, and so does an entry that nothing needs."""

import fnmatch
import pathlib
import re
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ORACLE = HERE / "h200-580.txt"
CAPTURES = HERE / "captures-h200-580.txt"
UNASKED = HERE / "unasked.txt"
DIFFERENCES = HERE / "differences.yml"
NATIVELY = HERE.parent / "natively.yml"
PLACES = ("direct", "shm", "tcp")
FAILURES = ("CRASHED", "HUNG")
LEFT_OUT = "# left out, not always the same: "
NUMBERED = re.compile(r"^(.*?[= ])(0x[0-9a-f]+|-?\d+)(.*)$")


def read_answers(lines):
    """Case -> answer. A case that comes again gets a number."""
    answers = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        case, _, answer = line.rstrip("\n").partition(": ")
        name, again = case, 1
        while name in answers:
            again += 1
            name = f"{case} ({again})"
        answers[name] = answer
    return answers


def follows(a, b):
    """Whether number b comes right after a in a row of cases."""
    if a.startswith("0x") != b.startswith("0x"):
        return False
    if a.startswith("0x"):
        return int(b, 16) == 2 * int(a, 16)
    return int(b) == int(a) + 1


def pack(answers):
    """Lines in which rows of cases with the same answer are one: "f flags={0x2..0x80}: RESULT"."""
    rows = []
    for case, answer in answers.items():
        found = NUMBERED.match(case)
        if found:
            before, number, after = found.groups()
            # An answer that repeats the number is the same answer.
            if rows and rows[-1][0] == (before, after, answer) and follows(rows[-1][2], number):
                rows[-1][2] = number
                continue
            rows.append([(before, after, answer), number, number])
        else:
            rows.append([(case, "", answer), "", ""])
    lines = []
    for (before, after, answer), first, last in rows:
        middle = first if first == last else f"{{{first}..{last}}}"
        lines.append(f"{before}{middle}{after}: {answer}")
    return lines


def unpack(lines):
    for line in lines:
        found = re.match(r"^(.*?)\{(-?\w+)\.\.(-?\w+)\}(.*)$", line.rstrip("\n"))
        if not found:
            yield line
            continue
        before, first, last, after = found.groups()
        number = first
        while True:
            yield f"{before}{number}{after}"
            if number == last:
                break
            value = int(number, 0)
            number = hex(2 * value) if number.startswith("0x") else str(value + 1)


def record(first, second, head):
    runs = [read_answers(pathlib.Path(p).read_text().splitlines()) for p in (first, second)]
    same = {case: answer for case, answer in runs[0].items() if runs[1].get(case) == answer}
    text = ["# Answers of a real driver; made by answers.py record, not edited."]
    text += [f"# {line}" for line in pathlib.Path(head).read_text().splitlines() if line.strip()]
    text += [LEFT_OUT + case for case in runs[0] if case not in same]
    lines = pack(same)
    assert read_answers(unpack(lines)) == same
    ORACLE.write_text("\n".join(text + lines) + "\n")
    return 0


def without(functions, lines):
    return [line for line in lines if line.startswith("#") or line.split()[0] not in functions]


def add(first, second, captures, head):
    """For new functions, of the driver that the files are of: `answers FUNCTION...` is enough."""
    runs = [read_answers(pathlib.Path(p).read_text().splitlines()) for p in (first, second)]
    functions = {case.split()[0] for case in runs[0]} & {case.split()[0] for case in runs[1]}
    same, other = {}, []
    for case, answer in runs[0].items():
        if case.split()[0] in functions and runs[1].get(case) == answer:
            same[case] = answer
        elif case.split()[0] in functions:
            other.append(case)
    lines = without(functions, ORACLE.read_text().splitlines())
    lines = [x for x in lines if not any(x.startswith(LEFT_OUT + f + " ") for f in functions)]
    heads = [x for x in pathlib.Path(head).read_text().splitlines() if x.strip()]
    lines += [f"# {', '.join(heads)}:"] + [LEFT_OUT + case for case in other] + pack(same)
    ORACLE.write_text("\n".join(without_empty_heads(lines)) + "\n")
    found = read_answers(pathlib.Path(captures).read_text().splitlines())
    asked = {case.split()[0] for case in found}
    lines = without(asked, CAPTURES.read_text().splitlines()) + capture_lines(found)
    CAPTURES.write_text("\n".join(lines) + "\n")
    functions |= asked
    lines = [x for x in UNASKED.read_text().splitlines() if x.partition(":")[0] not in functions]
    UNASKED.write_text("\n".join(lines) + "\n")
    return 0


def without_empty_heads(lines):
    """A head of lines that have all been replaced since goes, too."""
    ends = [*lines[1:], "# :"]
    return [x for x, y in zip(lines, ends, strict=True) if not (is_head(x) and is_head(y))]


def is_head(line):
    return line.startswith("# ") and line.endswith(":")


def read_unasked():
    lines = UNASKED.read_text().splitlines()
    return {line.partition(":")[0] for line in lines if not line.startswith("#")}


class Differences:
    """differences.yml: groups of `why` with `cases` (patterns of fnmatch; [ has no meaning there),
    perhaps `where` (places, all by default), `ours` (the result there), `may_agree` (the answer
    is a matter of time) and `simulated` (it is the simulated GPU that differs)."""

    def __init__(self, simulated=True):
        self.entries = []
        for group in yaml.safe_load(DIFFERENCES.read_text()):
            if group.get("simulated") and not simulated:
                continue
            where = group.get("where", PLACES)
            for pattern in group["cases"]:
                check = re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
                self.entries.append(
                    {
                        "pattern": pattern,
                        "check": check,
                        "where": where,
                        "ours": group.get("ours"),
                        "may_agree": group.get("may_agree", False),
                    }
                )

    def explain(self, place, case, ours):
        """Whether an entry names this difference."""
        explained = False
        for entry in self.entries:
            if place in entry["where"] and entry["check"].match(case):
                if entry["ours"] in (None, re.split("[ ,]", ours)[0]):
                    entry["used"] = True
                    explained = True
        return explained

    def unused(self, places):
        """Patterns that named no difference, of those whose places were all looked at."""
        return [
            entry["pattern"]
            for entry in self.entries
            if "used" not in entry
            and not entry["may_agree"]
            and all(place in places for place in entry["where"])
        ]


def run_program(folder, place, *arguments):
    sys.path.insert(0, str(HERE.parents[1] / "support"))
    import fargpu_testing as testing

    build = testing.Build(folder)
    program = [build.folder / "tests" / "conformance" / "answers", "--jobs", 2, "--limit", 60]
    program += arguments
    if place == "direct":
        environment = testing.clean_environment(LD_LIBRARY_PATH=build.sim_libraries)
        done = testing.run(program, timeout=280, env=environment)
    else:
        wrapper = [build.fargpu, "run", "--sim", "--transport", place, "--"]
        done = testing.run([*wrapper, *program], timeout=280)
    if done.returncode != 0:
        raise SystemExit(f"{place}: answers ended with {done.returncode}\n{done.stderr[-4000:]}")
    return read_answers(done.stdout.splitlines())


def differing(native, ours):
    """(case, what the driver answered, what ours did) of the answers that are not alike."""
    for case, expected in native.items():
        answer = ours.get(case, "not called")
        # Where the driver itself crashes, any answer is right that is no crash.
        crashes = expected.startswith(FAILURES) and not answer.startswith(FAILURES)
        if answer != expected and not crashes:
            yield case, expected, answer


def differing_programs(program):
    """The arguments with which a conformance program prints something else natively, and whether it
    does so only on the simulated GPU."""
    known = [
        (*group["program"].partition(" "), group.get("simulated", False))
        for group in yaml.safe_load(NATIVELY.read_text())
    ]
    return {argument: simulated for name, _, argument, simulated in known if name == program}


def crashes():
    """The cases that a real driver does not survive: its answers to others are wanted."""
    native = read_answers(unpack(ORACLE.read_text().splitlines()))
    return [case for case, answer in native.items() if answer.startswith(FAILURES)]


def beside(native, ours, place):
    """What fargpu on a real GPU answers otherwise than the driver does there, of two outputs of
    `answers`, without what differences.yml explains: a line each."""
    differences = Differences(simulated=False)
    place = place if place in PLACES else "tcp"  # the transports to another machine are alike
    return [
        f"{case}: the driver {expected}, ours {answer}"
        for case, expected, answer in differing(read_answers(native), read_answers(ours))
        if not differences.explain(place, case, answer)
    ]


def compare(build, places):
    native = read_answers(unpack(ORACLE.read_text().splitlines()))
    differences = Differences()
    wrong = 0
    for place in places:
        ours = run_program(build, place)
        found = list(differing(native, ours))
        unlisted = [d for d in found if not differences.explain(place, d[0], d[2])]
        for case, expected, answer in unlisted:
            print(f"{place}: {case}: the driver {expected}, ours {answer}")
        print(
            f"{place}: of {len(native)} answers {len(native) - len(found)} agree,"
            f" {len(found) - len(unlisted)} differ as listed, {len(unlisted)} otherwise"
        )
        wrong += len(unlisted)
    for line in differences.unused(places):
        print(f"differences.yml: nothing differs any more: {line}")
        wrong += 1
    return 1 if wrong else 0


# The captures of `answers --captures`, in its order; captures-h200-580.txt names them by number.
KINDS = (
    "in a stream captured globally",
    "in a stream captured by its thread",
    "in a stream captured relaxed",
    "beside a stream captured globally",
    "beside a stream captured by its thread",
    "beside a stream captured relaxed",
    "beside a stream captured globally, other thread",
    "in a stream captured globally, other thread",
)


def record_captures(first, second, head):
    """One line per function and answer: "function 12: RESULT" for the kinds 1 and 2."""
    runs = [read_answers(pathlib.Path(p).read_text().splitlines()) for p in (first, second)]
    text = ["# Calls during captures on a real driver; made by answers.py captures, not edited."]
    text += [f"# {line}" for line in pathlib.Path(head).read_text().splitlines() if line.strip()]
    text += [f"# {number}: {kind}" for number, kind in enumerate(KINDS, 1)]
    for case, answer in runs[0].items():
        if runs[1].get(case) != answer:
            raise SystemExit(f"not always the same: {case}")
    CAPTURES.write_text("\n".join(text + capture_lines(runs[0])) + "\n")
    return 0


def capture_lines(answers):
    rows = {}
    for case, answer in answers.items():
        function, _, kind = case.partition(" ")
        rows.setdefault((function, answer), []).append(KINDS.index(kind) + 1)
    return [
        f"{function} {''.join(map(str, kinds))}: {answer}"
        for (function, answer), kinds in rows.items()
    ]


def read_captures():
    """Function -> the answers of all kinds, in their order."""
    measured = {}
    for line in CAPTURES.read_text().splitlines():
        if line.startswith("#"):
            continue
        case, _, answer = line.partition(": ")
        function, kinds = case.split(" ")
        for kind in kinds:
            measured.setdefault(function, {})[int(kind)] = answer
    return {name: [kinds[n] for n in sorted(kinds)] for name, kinds in measured.items()}


def class_of(strict, relaxed):
    """What a call was during captures: the answers with strict modes, and with the relaxed one. A
    driver may crash in a later call once a context has gone during its capture: that says nothing.
    """
    strict = [a for a in strict if not a.startswith("CRASHED")] or [relaxed]
    relaxed = strict[0] if relaxed.startswith("CRASHED") else relaxed
    if len(set(strict)) != 1:
        return f"{strict[0]} in one mode, {strict[1]} in the other"
    result, _, values = strict[0].partition(", then ")[0].partition(" ")
    broken = 'capture="invalidated"' in values
    if result == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" and broken:
        return "implicit"
    if result == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED":
        if not broken:
            return "refused"
        return "forbidden" if relaxed.startswith(result) else "unsafe"
    if relaxed != strict[0]:
        return f"{strict[0]}, relaxed {relaxed}"
    return "captured" if "nodes=" in values and not values.endswith("nodes=0") else "free"


def supported_functions():
    sys.path.insert(0, str(HERE.parents[2] / "schema"))
    from apigen import describe

    api = describe.load(HERE.parents[2] / "schema")
    return [f for f in api.functions if not f.internal and not f.header and f.supported]


def chapters():
    """Chapter of the description -> its functions."""
    found = {}
    for f in supported_functions():
        found.setdefault(f.chapter, []).append(f.name)
    return found


def check_classes():
    """Compares `capture` of every function with what a real driver did."""
    functions = supported_functions()
    from apigen import describe

    measured, unasked = read_captures(), read_unasked()
    stale = sorted(unasked - ({f.name for f in functions} - measured.keys()))
    for name in stale:
        print(f"{UNASKED.name}: {name} is not supported, or has been asked about")
    wrong = len(stale)
    for f in functions:
        if f.name in unasked:
            continue
        expected = describe.CAPTURES[f.capture]
        answers = measured.get(f.name)
        if answers is None:
            print(f"{f.name}: neither in {CAPTURES.name} nor in {UNASKED.name}")
            wrong += 1
            continue
        seen = (
            class_of(answers[0:2], answers[2]),
            class_of(answers[3:5], answers[5]),
        )
        if f.name in UNCOUNTED:
            seen = (UNCOUNTED[f.name], seen[1])
        if f.name in JUDGED_ELSEWHERE:
            seen = expected
        if seen != expected:
            print(f"{f.where}: {f.name}: capture: {f.capture}, but the driver: {' / '.join(seen)}")
            wrong += 1
    return 1 if wrong else 0


# They answer otherwise (differences.yml); what becomes of the capture is compared all the same.
OTHERWISE = {
    "cuArrayGetMemoryRequirements",
    "cuArrayGetPlane",
    "cuCtxEnablePeerAccess",
    "cuCtxGetExecAffinity",
    "cuDeviceGetHostAtomicCapabilities",
    "cuDeviceGetP2PAtomicCapabilities",
    "cuDeviceGetTexture1DLinearMaxWidth",
    "cuLaunch",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
    "cuMipmappedArrayGetMemoryRequirements",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeIm2colWide",
    "cuTensorMapEncodeTiled",
    "cuTensorMapReplaceAddress",
}


# Through fargpu a context does not end with cuCtxDetach, so what comes after it finds the capture.
LASTS = ("cuCtxDetach",)


def check_captures(build, places):
    """Compares what ours does during captures with the real driver."""
    wrong = 0
    for place in places:
        ours = run_program(build, place, "--captures")
        for function, answers in read_captures().items():
            for kind, native in zip(KINDS, answers, strict=True):
                answer = ours.get(f"{function} {kind}", "not called")
                of_the_client = place == "direct" and function.startswith(("cuLogs", "cuCoredump"))
                if function in OTHERWISE or of_the_client:
                    native, answer = native.partition(" ")[2], answer.partition(" ")[2]
                if function in LASTS and place != "direct":
                    answer = answer.partition(", then ")[0]
                if answer == native or native.startswith("CRASHED"):
                    continue
                print(f"{place}: {function} {kind}: the driver {native}, ours {answer}")
                wrong += 1
    return 1 if wrong else 0


# Captured without a node of their own: an event that is recorded, or waited for, stands for nodes.
UNCOUNTED = {
    "cuEventRecord": "captured",
    "cuEventRecordWithFlags": "captured",
    "cuStreamWaitEvent": "captured",
}


JUDGED_ELSEWHERE = {
    "cuIpcOpenMemHandle",  # opens memory once, so the calls behind the first one fail
    "cuLaunchCooperativeKernelMultiDevice",  # its streams are no arguments: client/manual looks
}


if __name__ == "__main__":
    if sys.argv[1] == "record":
        sys.exit(record(*sys.argv[2:]))
    if sys.argv[1] == "captures":
        sys.exit(record_captures(*sys.argv[2:]))
    if sys.argv[1] == "add":
        sys.exit(add(*sys.argv[2:]))
    if sys.argv[1] == "captured":
        sys.exit(check_captures(sys.argv[2], sys.argv[3:] or PLACES))
    if sys.argv[1] == "crashes":
        print("\n".join(crashes()))
        sys.exit()
    if sys.argv[1] == "classes":
        sys.exit(check_classes())
    sys.exit(compare(sys.argv[2], sys.argv[3:] or PLACES))
