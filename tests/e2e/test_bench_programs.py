"""bench/programs.py: its table, with programs that report, time a part, fail, or report nothing."""

import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import fargpu_testing as testing

# What it reports depends on where it runs.
PROGRAM = """
import ctypes, json, os
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
way = os.environ.get("FARGPU_LINK", "remote" if "FARGPU_SERVER" in os.environ else "native")
os.write(1, b"[1, 2]\\n7\\n")
print(json.dumps({"values": [1], "seconds": SECONDS[way]}))
"""
# Says each run of the whole and of its part, in a file.
PARTS = """
import ctypes
from report import report, timed
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
say = lambda what: print(what, file=open(LOG, "a"))
say("whole")
value, seconds = timed(lambda: say("part"), runs=2, synchronize=lambda: None)
report([1], seconds)
"""
LINK = "rtt=1ms,bandwidth=1Gbps"
SECONDS = {"native": 0.002, "remote": 0.001, LINK: 0.003}


def program(**changes):
    """One that says more than its report."""
    return f"SECONDS = {SECONDS | changes!r}\n{PROGRAM}"


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def measure(self, alone, *together, more=()):
        """(finished process, seconds by program and way)"""
        results = self.folder / "results.json"
        done = testing.run(
            [
                *(sys.executable, testing.ROOT / "bench" / "programs.py", "--where", "sim"),
                *("--build-dir", testing.BUILD.folder, "--folder", self.folder, "--rounds", "2"),
                *("--starts", "2", "--imports", "json"),
                *("--ways", "native", "shm", "tcp", LINK, "--json", results),
                *more,
                *("--alone", *([alone] if alone else []), "--programs", *together),
            ],
            timeout=300,
            env=testing.clean_environment(),
        )
        return done, json.loads(results.read_text())

    def write(self, **programs):
        for name, text in programs.items():
            (self.folder / f"{name}.py").write_text(text)

    def test_table(self):
        self.write(first=program(remote=4.0), second=program(), third=program(remote=0.004))
        done, seconds = self.measure("first", "second", "third")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(
            seconds["second"],
            {"native": [0.002] * 4, "shm": [0.001] * 4, "tcp": [0.001] * 4, LINK: [0.003] * 4},
        )
        self.assertEqual(seconds["third"]["tcp"], [0.004] * 4)
        self.assertEqual(seconds["first"]["tcp"], [4.0] * 2)
        self.assertIn(f"| program | native | shm | tcp | {LINK} |", done.stdout)
        self.assertIn("| second | 2 ms (2 to 2) | 1 ms (1 to 1), 0.50; 0.50 |", done.stdout)
        self.assertIn("| 3 ms (3 to 3), 1.50; 1.50 |", done.stdout)
        self.assertIn("| first | 2 ms (2 to 2) | 4 s (4 to 4), 2000.00; 2000.00 |", done.stdout)
        self.assertRegex(done.stderr, r"10 of 10: \d+ s, 0 s left")

    def test_two_builds(self):
        """The same build twice: a program of its own tells the two daemons apart."""
        counts = "import os, pathlib\nlog = pathlib.Path(LOG)\n"
        counts += "server = os.environ.get('FARGPU_SERVER', 'native')\n"
        counts += "log.open('a').write(server + '\\n')\n"
        log = self.folder / "log"
        self.write(first=f"LOG = {str(log)!r}\n{counts}{program()}")
        done, seconds = self.measure(None, "first", more=["--other", testing.BUILD.folder])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        other = {f"{way} of the other build" for way in ("shm", "tcp", LINK)}
        self.assertEqual(set(seconds["first"]), {"native", "shm", "tcp", LINK} | other)
        same = "1.000 (1.000 to 1.000, 4 rounds)"
        self.assertIn(f"| first | {same} | {same} | {same} |", done.stdout)
        servers = log.read_text().split()
        self.assertEqual(len(set(servers)), 3)
        for server in set(servers) - {"native"}:
            self.assertEqual(servers.count(server), 2 * 3 * 3, servers)

    def test_a_part_is_timed_again(self):
        shutil.copy(testing.ROOT / "tests" / "apps" / "report.py", self.folder)
        log = self.folder / "log"
        self.write(first=program(), parts=f"LOG = {str(log)!r}\n{PARTS}")
        done, seconds = self.measure("first", "parts")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([len(times) for times in seconds["parts"].values()], [4] * 4)
        said = log.read_text().split()
        # In each of 2 starts each of 4 ways runs the whole, and its part twice more.
        self.assertEqual(said.count("whole"), 2 * 4)
        self.assertEqual(said.count("part"), 2 * 4 * 3 * 2)

    def test_a_program_that_fails(self):
        fails = "import os, sys\nif 'FARGPU_LINK' in os.environ: sys.exit('the cause')\n"
        self.write(first=program(), second=fails + program(), silent="pass\n")
        done, seconds = self.measure("first", "second")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(seconds["second"]["shm"], [0.001] * 4)
        self.assertEqual(seconds["second"][LINK], [None] * 4)
        self.assertIn("the cause", done.stderr)
        self.assertIn("1 ms (1 to 1), 0.50; 0.50 |  |\n", done.stdout)
        dies = "import os\nif 'FARGPU_LINK' in os.environ: os._exit(3)\n"
        self.write(dies=dies + program())
        done, seconds = self.measure("first", "dies", "second")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(seconds["dies"][LINK], [None] * 4)
        self.assertEqual(seconds["dies"]["tcp"], [0.001] * 4)
        self.assertIn(f"dies, {LINK}: no answer", done.stderr)
        done, seconds = self.measure("first", "silent")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(seconds["silent"]["native"], [None] * 4)


if __name__ == "__main__":
    testing.main()
