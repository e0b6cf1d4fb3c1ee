"""bench/programs.py: its table, with programs that report, fail, or report nothing."""

import json
import pathlib
import sys
import tempfile
import unittest

import fargpu_testing as testing

# What it reports depends on where it runs.
PROGRAM = """
import ctypes, json, os
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
way = os.environ.get("FARGPU_LINK", "remote" if "FARGPU_SERVER" in os.environ else "native")
print(json.dumps({"values": [1], "seconds": SECONDS[way]}))
"""
LINK = "rtt=1ms,bandwidth=1Gbps"
SECONDS = {"native": 0.002, "remote": 0.001, LINK: 0.003}


def program(**changes):
    return f"SECONDS = {SECONDS | changes!r}\n{PROGRAM}"


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def measure(self, alone, *together):
        """(finished process, seconds by program and way)"""
        results = self.folder / "results.json"
        done = testing.run(
            [
                *(sys.executable, testing.ROOT / "bench" / "programs.py", "--where", "sim"),
                *("--build-dir", testing.BUILD.folder, "--folder", self.folder, "--rounds", "2"),
                *("--ways", "native", "shm", "tcp", LINK, "--json", results),
                *("--alone", alone, "--programs", *together),
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
            {
                "native": [0.002, 0.002],
                "shm": [0.001, 0.001],
                "tcp": [0.001, 0.001],
                LINK: [0.003, 0.003],
            },
        )
        self.assertEqual(seconds["third"]["tcp"], [0.004, 0.004])
        self.assertIn(f"| program | native | shm | tcp | {LINK} |", done.stdout)
        self.assertIn("| second | 2 ms (2 to 2) | 1 ms (1 to 1), 0.50; 0.50 |", done.stdout)
        self.assertIn("| 3 ms (3 to 3), 1.50; 1.50 |", done.stdout)
        self.assertIn("| first | 2 ms (2 to 2) | 4 s (4 to 4), 2000.00; 2000.00 |", done.stdout)
        self.assertRegex(done.stderr, r"round 2 of 2: \d+ s, 0 s left")

    def test_a_program_that_fails(self):
        fails = "import os, sys\nif 'FARGPU_LINK' in os.environ: sys.exit('the cause')\n"
        self.write(first=program(), second=fails + program(), silent="pass\n")
        done, seconds = self.measure("first", "second")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(seconds["second"]["shm"], [0.001, 0.001])
        self.assertEqual(seconds["second"][LINK], [None, None])
        self.assertIn("the cause", done.stderr)
        self.assertIn("1 ms (1 to 1), 0.50; 0.50 |  |\n", done.stdout)
        done, seconds = self.measure("first", "silent")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(seconds["silent"]["native"], [None, None])


if __name__ == "__main__":
    testing.main()
