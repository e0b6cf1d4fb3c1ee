"""`--where`: reports name the lines and functions from which calls waited, with and without the
GIL."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import fargpu_testing as testing

COUNT = 20
COPY = "cuMemcpyDtoH_v2"
NOT_KNOWN = "(line of Python not known)"
# PyDLL holds the GIL in a call, CDLL gives it away.
LOADS = {"held": "PyDLL", "released": "CDLL"}
# What the programs begin with. A line with "# name" is found by that name.
BEGIN = """
import ctypes, os, sys, threading
def load(kind):
    global driver
    driver = getattr(ctypes, kind)("libcuda.so.1")
word, memory, context = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
def check(code):
    if code:
        raise RuntimeError(code)
def begin():
    check(driver.cuInit(0))
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))  # begin
    check(driver.cuCtxSetCurrent(context))
    check(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4)))
def copy():
    arguments = (ctypes.byref(word), memory, ctypes.c_size_t(4))
    check(driver.cuMemcpyDtoH_v2(*arguments))  # copy
"""
IN_THREADS = """
def thread(work):
    check(driver.cuCtxSetCurrent(context))
    for _ in range(20):
        work()
def first():
    check(driver.cuMemcpyDtoH_v2(ctypes.byref(word), memory, ctypes.c_size_t(4)))  # first
def second():
    check(driver.cuMemcpyDtoH_v2(ctypes.byref(word), memory, ctypes.c_size_t(4)))  # second
load(sys.argv[1])
begin()
threads = [threading.Thread(target=thread, args=(work,)) for work in (first, second)]
for one in threads:
    one.start()
for one in threads:
    one.join()
"""
PLAIN = """
load(sys.argv[1])
begin()
for _ in range(20):
    copy()
"""
# By a library that is installed; `steps` of the program's own.
BY_LIBRARY = """
import sys
sys.path.insert(0, sys.argv[2])
import gpu
def steps():
    for _ in range(20):
        gpu.copy()  # steps
gpu.load(sys.argv[1])
gpu.begin()
steps()
"""
# Parent and child have sessions of their own, at the same time; the parent had a call before.
FORKS = """
def in_parent():
    check(driver.cuMemcpyDtoH_v2(ctypes.byref(word), memory, ctypes.c_size_t(4)))  # parent
def in_child():
    check(driver.cuMemcpyDtoH_v2(ctypes.byref(word), memory, ctypes.c_size_t(4)))  # child
load(sys.argv[1])
driver.cuDriverGetVersion(ctypes.byref(word))
child = os.fork()
begin()
for _ in range(500):
    in_child() if child == 0 else in_parent()
if child != 0:
    sys.exit(os.waitpid(child, 0)[1])
"""
# A KeyError is under way while the driver is called.
WITH_EXCEPTION = """
load("PyDLL")
begin()
library = ctypes.PyDLL(sys.argv[1])
for _ in range(20):
    try:
        library.copy_with_exception(ctypes.byref(word), memory)  # exception
        sys.exit("no exception")
    except KeyError as error:
        assert error.args == ("kept",)
"""
# The collector has something to do wherever an object is made.
WITH_GARBAGE = """
import gc
load("PyDLL")
begin()
library = ctypes.PyDLL(sys.argv[1])
inside, met = ctypes.c_int.in_dll(library, "in_copy"), []
class Kept:
    pass
def step():
    check(library.copy_and_say(ctypes.byref(word), memory))  # garbage
gc.callbacks.append(lambda phase, _: met.append(phase) if inside.value else None)
gc.set_threshold(10)
kept = []
for number in range(300):
    for _ in range(number % 13):
        kept.append(Kept())
    step()
assert not met, met
assert gc.isenabled()
"""
# It takes the numbers of descriptors that are not its own.
CLOSES = """
load(sys.argv[1])
driver.cuDriverGetVersion(ctypes.byref(word))
def is_for_places(descriptor):
    try:
        return "fargpu-places" in os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return False
(theirs,) = filter(is_for_places, map(int, os.listdir("/proc/self/fd")))
os.close(theirs)
opened = os.open(sys.argv[2], os.O_CREAT | os.O_RDWR)
mine = os.dup2(opened, theirs)
assert mine == theirs
os.close(opened)
os.write(mine, b"mine")
"""


def line_of(program, name):
    """ "12" of the line that ends with `# name`."""
    (number,) = [
        number for number, line in enumerate(program.splitlines(), 1) if line.endswith(f"# {name}")
    ]
    return number


def pythons():
    """That of the tests, the system's, and those of FARGPU_TEST_PYTHONS (a list like PATH)."""
    named = os.environ.get("FARGPU_TEST_PYTHONS", "").split(":")
    found = [sys.executable, "/usr/bin/python3", *named]
    return list(dict.fromkeys(each for each in found if os.access(each, os.X_OK)))


def each_way():
    return [(python, kind) for python in pythons() for kind in LOADS.values()]


class Where(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="fargpu-where-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def reports(self, *command, flags=("--where",)):
        """Of each process, in the order of their ends."""
        file = self.folder / "report.json"
        file.unlink(missing_ok=True)
        with testing.Daemon() as daemon:
            done = daemon.run(*command, flags=(f"--report={file}", *flags))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [json.loads(line) for line in file.read_text().splitlines()]

    def places(self, *command):
        """{(function, place): its entry} of the last process."""
        report = self.reports(*command)[-1]
        self.assertGreater(report["looking_ns"], 0)
        return {(each["function"], each["place"]): each for each in report["places"]}

    def test_a_line_of_python(self):
        text = BEGIN + PLAIN
        program = self.write("copies.py", text)
        for python, kind in each_way():
            with self.subTest(python=python, kind=kind):
                found = self.places(python, program, kind)
                copies = found[COPY, f"{program}:{line_of(text, 'copy')} in copy"]
                self.assertEqual(copies["waited"], COUNT)
                self.assertEqual(copies["round_trips"], COUNT)
                self.assertEqual(copies["bytes_received"], 4 * COUNT)
                self.assertGreater(copies["waited_ns"], 0)
                self.assertEqual(copies["library"], "")
                self.assertNotIn(NOT_KNOWN, "".join(place for _, place in found))
                place = f"{program}:{line_of(text, 'begin')} in begin"
                self.assertEqual(found["cuDevicePrimaryCtxRetain", place]["waited"], 1)

    def test_threads_are_told_apart(self):
        text = BEGIN + IN_THREADS
        program = self.write("threads.py", text)
        for python, kind in each_way():
            with self.subTest(python=python, kind=kind):
                found = self.places(python, program, kind)
                for name in ("first", "second"):
                    place = f"{program}:{line_of(text, name)} in {name}"
                    self.assertEqual(found[COPY, place]["waited"], COUNT)

    def test_a_library_is_named_beside_the_programs_line(self):
        self.write("site-packages/gpu.py", BEGIN)
        program = self.write("steps.py", BY_LIBRARY)
        for python, kind in each_way():
            with self.subTest(python=python, kind=kind):
                found = self.places(python, program, kind, self.folder / "site-packages")
                entry = found[COPY, f"{program}:{line_of(BY_LIBRARY, 'steps')} in steps"]
                self.assertEqual(entry["library"], f"gpu.py:{line_of(BEGIN, 'copy')} in copy")
                self.assertEqual(entry["waited"], COUNT)

    def test_without_faulthandler_only_who_holds_the_gil_is_known(self):
        text = "import sys\nsys.modules['faulthandler'] = None\n" + BEGIN + PLAIN
        program = self.write("copies.py", text)
        known = (COPY, f"{program}:{line_of(text, 'copy')} in copy")
        for python, kind in each_way():
            with self.subTest(python=python, kind=kind):
                found = self.places(python, program, kind)
                if kind == LOADS["held"]:  # and Python is 3.9 or later
                    self.assertEqual(found[known]["waited"], COUNT)
                    continue
                self.assertNotIn(known, found)
                (copies,) = [each for each in found.values() if each["function"] == COPY]
                self.assertEqual(copies["waited"], COUNT)
                self.assertTrue(copies["place"].endswith(NOT_KNOWN), copies["place"])

    def test_a_name_that_is_not_ascii_is_one_name(self):
        text = BEGIN + PLAIN
        program = self.write("schritt_\u00e4\u4e2d.py", text)
        shown = str(program).replace("\u00e4\u4e2d", "\\xe4\\u4e2d")
        for python, kind in each_way():
            with self.subTest(python=python, kind=kind):
                found = self.places(python, program, kind)
                self.assertIn((COPY, f"{shown}:{line_of(text, 'copy')} in copy"), found)

    def test_a_forked_child(self):
        text = BEGIN + FORKS
        program = self.write("forks.py", text)
        for python, kind in each_way():
            with self.subTest(python=python, kind=kind):
                reports = self.reports(python, program, kind)  # the child ends first
                for name, report in zip(("child", "parent"), reports, strict=True):
                    place = f"{program}:{line_of(text, name)} in in_{name}"
                    (found,) = [one for one in report["places"] if one["function"] == COPY]
                    self.assertEqual((found["place"], found["waited"]), (place, 500))

    def test_an_exception_stays_under_way(self):
        text = BEGIN + WITH_EXCEPTION
        program = self.write("exception.py", text)
        library = testing.BUILD.program("pending_exception.so")
        for python in pythons():
            with self.subTest(python=python):
                found = self.places(python, program, library)
                place = f"{program}:{line_of(text, 'exception')} in <module>"
                self.assertEqual(found[COPY, place]["waited"], COUNT)

    def test_no_code_of_the_program_runs_inside_of_a_call(self):
        text = BEGIN + WITH_GARBAGE
        program = self.write("garbage.py", text)
        library = testing.BUILD.program("pending_exception.so")
        for python in pythons():
            with self.subTest(python=python):
                found = self.places(python, program, library)
                place = f"{program}:{line_of(text, 'garbage')} in step"
                self.assertEqual(found[COPY, place]["waited"], 300)

    def test_a_file_of_the_program_is_left_alone(self):
        text = BEGIN + CLOSES + PLAIN
        program, mine = self.write("closes.py", text), self.folder / "mine"
        found = self.places(sys.executable, program, LOADS["released"], mine)
        self.assertEqual(mine.read_bytes(), b"mine")
        (copies,) = [each for each in found.values() if each["function"] == COPY]
        self.assertTrue(copies["place"].endswith(NOT_KNOWN), copies["place"])

    def test_a_native_program(self):
        found = self.places(testing.BUILD.program("waits"), COUNT, 0, 1, 0)
        self.assertEqual(found["cuDevicePrimaryCtxRetain", "waits: main"]["waited"], 1)
        (copies,) = [each for each in found.values() if each["function"] == COPY]
        self.assertEqual(copies["waited"], COUNT)
        self.assertRegex(copies["place"], r"^waits: .*(work|main)")

    def test_a_native_program_with_the_runtime_inside(self):
        found = self.places(testing.BUILD.program("copies"))
        places = {place for function, place in found if function.startswith("cuMemcpy2D")}
        self.assertIn("copies: two_dimensions()", places)

    def test_the_report_for_people(self):
        text = BEGIN + PLAIN
        program = self.write("copies.py", text)
        with testing.Daemon() as daemon:
            done = daemon.run(
                sys.executable, program, LOADS["released"], flags=("--report", "--where")
            )
        place = f"{program}:{line_of(text, 'copy')} in copy"
        self.assertRegex(done.stderr, rf"fargpu: +(waited at +)?{place} \({COPY} {COUNT}, ")

    def test_the_advice_names_the_place(self):
        text = BEGIN + PLAIN
        program = self.write("copies.py", text)
        with testing.Daemon() as daemon:
            done = testing.run(
                [testing.BUILD.fargpu, "bench", "app", "--server", daemon.server, "--where"]
                + ["--at", "rtt=100ms", "--", sys.executable, program, LOADS["released"]]
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        place = f"from {program}:{line_of(text, 'copy')} in copy: {COUNT}"
        wait = f"{COUNT} waits in {COPY}, 4 bytes each"
        advice = done.stdout[done.stdout.index("what would help") :].splitlines()
        (at,) = [number for number, line in enumerate(advice) if wait in line]
        self.assertEqual(advice[at + 1].strip(), place)

    def test_nothing_unasked(self):
        program = self.write("copies.py", BEGIN + PLAIN)
        (report,) = self.reports(sys.executable, program, LOADS["held"], flags=())
        self.assertNotIn("places", report)
        done = testing.run([testing.BUILD.fargpu, "run", "--where", "--sim", "--", "true"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("--report", done.stderr)


if __name__ == "__main__":
    testing.main()
