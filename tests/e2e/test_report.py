"""`fargpu run --report`: the counts are those of the calls that the program made."""

import os
import re
import sys
import tempfile
import unittest

import fargpu_testing as testing

PROGRAM = "reported"
# A daemon: closes what it inherits, and opens files of its own.
CLOSES = """
import ctypes, os, sys, time
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
driver.cuDriverGetVersion(ctypes.byref(count))
os.chdir(sys.argv[1])
time.sleep(float(sys.argv[2]))
os.closerange(3, 1000)
for name in range(8):
    os.open(f"data{name}", os.O_CREAT | os.O_WRONLY)
"""
# A child that begins three seconds after its parent.
FORKS_LATE = """
import ctypes, os, sys, time
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
driver.cuDriverGetVersion(ctypes.byref(count))
time.sleep(3)
child = os.fork()
driver.cuDriverGetVersion(ctypes.byref(count))
if child != 0:
    os.waitpid(child, 0)
"""
# Threads call while the process forks; the child makes one call, which is refused there.
FORKS = """
import ctypes, os, sys, threading
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
def ask(times):
    for _ in range(times):
        driver.cuDeviceGetCount(ctypes.byref(count))
driver.cuInit(0)
threads = [threading.Thread(target=ask, args=(1000,)) for _ in range(4)]
for thread in threads:
    thread.start()
child = os.fork()
if child == 0:
    ask(1)
    sys.exit(0)
for thread in threads:
    thread.join()
os.waitpid(child, 0)
"""
LINES = ("calls", "waited", "host to device", "device to host", "images", "not supported")


def reports(text):
    """[{title of a line: the line}] of each report in `text`, in order."""
    found = []
    for line in text.splitlines():
        if re.match(r"fargpu: report of \S+ \(process \d+\)", line):
            found.append({})
        for title in LINES:
            if found and line.startswith(f"fargpu:   {title} "):
                found[-1][title] = line[len("fargpu:   ") + len(title) :].strip()
    return found


def calls(report):
    """(all, answered in the client, sent, waited)"""
    return tuple(int(number) for number in re.findall(r"\d+", report["calls"]))


class Report(unittest.TestCase):
    def run_program(self, *arguments, flags=("--report",), **variables):
        with testing.Daemon() as daemon:
            environment = testing.clean_environment(**variables)
            done = daemon.run(
                testing.BUILD.program(PROGRAM), *arguments, flags=flags, env=environment
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stderr

    def report(self, *arguments, **variables):
        found = reports(self.run_program(*map(str, arguments), **variables))
        self.assertEqual(len(found), 1)
        self.assertEqual(set(found[0]), set(LINES))
        return found[0]

    def test_calls_by_how_they_are_answered(self):
        few, many = (calls(self.report(count, "small")) for count in (0, 7))
        more = [b - a for a, b in zip(few, many, strict=True)]
        # Each time: one that asks, two fills, three waits; and twelve calls of threads that end.
        self.assertEqual(more, [7 * 18, 7 * 13, 7 * 2, 7 * 3])
        self.assertEqual(sum(many[1:]), many[0])

    def test_every_call_waits_if_told_so(self):
        few, many = (calls(self.report(count, "small", FARGPU_SYNC="1")) for count in (0, 7))
        more = [b - a for a, b in zip(few, many, strict=True)]
        self.assertEqual(more, [7 * 18, 7 * 13, 0, 7 * 5])

    def test_waits_have_their_time(self):
        waited = self.report(2)["waited"]
        total = float(waited.split()[0])
        # Behind a host function that sleeps for 0.2 s.
        (seconds,) = re.search(r"cuStreamSynchronize 7 \(([\d.]+) s\)", waited).groups()
        self.assertGreaterEqual(float(seconds), 0.19)
        self.assertGreaterEqual(total, float(seconds))

    @unittest.skipUnless(testing.WORKER_SHARES_MEMORY, "the worker shares no memory here")
    def test_bytes_by_route(self):
        report = self.report(0)
        to_device = (
            "1117112 bytes in 5 copies: "
            + {
                "tcp": "frames 5 (1117112 bytes)",
                "shm": "shared 1 (65536 bytes), staged 1 (1048576 bytes), frames 3 (3000 bytes)",
            }[os.environ["FARGPU_TEST_TRANSPORT"]]
        )
        self.assertEqual(report["host to device"], to_device)
        self.assertEqual(report["device to host"], "2000 bytes in 2 copies: frames 2 (2000 bytes)")

    def test_images_and_what_is_not_supported(self):
        report = self.report(0)
        self.assertRegex(report["images"], r"^1 sent \((\d+) bytes as \1\), 2 found at the server$")
        refused = "cuGraphicsUnregisterResource 2, functions of graphics libraries 1"
        self.assertEqual(report["not supported"], refused)

    def test_each_process_has_its_own(self):
        first, second = reports(self.run_program("3", "spawn"))
        self.assertEqual(calls(first)[0], calls(second)[0])
        self.assertEqual(first["images"].split(",")[0], "1 sent (79 bytes as 79)")
        self.assertEqual(second["images"], "0 sent (0 bytes as 0), 3 found at the server")

    def test_a_forked_child_counts_anew(self):
        with testing.Daemon() as daemon:
            done = daemon.run(sys.executable, "-c", FORKS, flags=("--report",))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(
            sorted(calls(each) for each in reports(done.stderr)), [(1, 1, 0, 0), (4001, 4001, 0, 0)]
        )

    def test_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report")
            stderr = self.run_program("0", "spawn", flags=(), FARGPU_REPORT=path)
            self.assertEqual(reports(stderr), [])
            with open(path) as file:
                self.assertEqual(len(reports(file.read())), 2)

    def test_a_childs_time_begins_with_its_fork(self):
        with testing.Daemon() as daemon:
            done = daemon.run(sys.executable, "-c", FORKS_LATE, flags=("--report",))
        times = re.findall(r"([0-9.]+) s from its (first call|fork) on", done.stderr)
        seconds = {since: float(each) for each, since in times}
        self.assertEqual(set(seconds), {"first call", "fork"}, done.stderr)
        self.assertGreaterEqual(seconds["first call"], 3.0)
        self.assertLessEqual(seconds["fork"], seconds["first call"] - 2.9)

    def test_a_file_among_descriptors_that_the_program_closes(self):
        self.closes_descriptors(pause=0)

    def test_descriptors_that_threads_sleep_on(self):
        self.closes_descriptors(pause=0.5)

    def closes_descriptors(self, pause):
        with tempfile.TemporaryDirectory() as folder, testing.Daemon() as daemon:
            inner = os.path.join(folder, "inner")
            os.mkdir(inner)
            # A path from the folder where fargpu run is called; the program changes its own.
            environment = testing.clean_environment(FARGPU_REPORT="report")
            program = [sys.executable, "-c", CLOSES, inner, str(pause)]
            done = daemon.run(*program, env=environment, cwd=folder, timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            for name in os.listdir(inner):
                with open(os.path.join(inner, name), "rb") as file:
                    self.assertEqual(file.read(), b"")
            with open(os.path.join(folder, "report")) as file:
                self.assertEqual(len(reports(file.read())), 1)

    def test_a_file_that_cannot_be_opened(self):
        stderr = self.run_program("0", flags=(), FARGPU_REPORT="/nonexistent/report")
        self.assertIn("FARGPU_REPORT=/nonexistent/report: cannot be opened", stderr)

    def test_nothing_unasked(self):
        self.assertEqual(reports(self.run_program("0", flags=())), [])


if __name__ == "__main__":
    testing.main()
