"""scripts/suites: what it counts, names and survives, with a suite whose tests pass, fail, crash or
hang natively or through fargpu only."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest

import fargpu_testing as testing

PYTHON = str(testing.ROOT / ".deps" / "python")
TESTS = """
import ctypes, os, time
import pytest

REMOTE = "FARGPU_SERVER" in os.environ
CUDA = ctypes.CDLL("libcuda.so.1")

def test_good():
    assert CUDA.cuInit(0) == 0

def test_bad_natively():
    assert REMOTE

def test_skipped():
    pytest.skip("not today")

def test_bad_through_fargpu():
    assert not REMOTE, "the cause"

def test_crashes_through_fargpu():
    if REMOTE:
        os.abort()

def test_hangs_through_fargpu():
    if REMOTE:
        time.sleep(60)

@pytest.mark.parametrize("number", range(3))
def test_behind(number):
    pass
"""


def need_pytest():
    done = subprocess.run(
        [sys.executable, "-c", "import pytest"], env=dict(os.environ, PYTHONPATH=PYTHON)
    )
    if done.returncode != 0:
        raise unittest.SkipTest("pytest is not there: scripts/setup fetches it")


class Suites(unittest.TestCase):
    def setUp(self):
        need_pytest()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "cuda" / "tests").mkdir(parents=True)
        self.results = self.folder / "results.json"

    def suites(self, tests, *arguments, **variables):
        """(finished process, table, {test: {side: result}})"""
        (self.folder / "cuda" / "tests" / "test_all.py").write_text(tests)
        done = testing.run(
            [
                *(sys.executable, testing.ROOT / "scripts" / "suites"),
                *("--build-dir", testing.BUILD.folder, "--where", "sim", "--jobs", "2"),
                *("--python", sys.executable, "--limit", "15", "--results", self.results),
                *("--table", self.folder / "table.md"),
                *(*arguments, f"cuda-python={self.folder}"),
            ],
            timeout=300,
            env=testing.clean_environment(PYTHONPATH=PYTHON, **variables),
        )
        found = json.loads(self.results.read_text()).get("cuda-python", {})
        by_name = {test.split("::")[1]: sides for test, sides in found.items()}
        return done, (self.folder / "table.md").read_text(), by_name

    def test_counts_and_names(self):
        done, table, found = self.suites(TESTS)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        outcomes = {
            name: tuple(sides[side]["outcome"] for side in ("native", "fargpu") if side in sides)
            for name, sides in found.items()
        }
        self.assertEqual(
            outcomes,
            {
                "test_good": ("passed", "passed"),
                "test_bad_natively": ("failed",),
                "test_skipped": ("skipped",),
                "test_bad_through_fargpu": ("passed", "failed"),
                "test_crashes_through_fargpu": ("passed", "crashed"),
                "test_hangs_through_fargpu": ("passed", "hung"),
                **{f"test_behind[{number}]": ("passed", "passed") for number in range(3)},
            },
        )
        self.assertIn("| 9 | 0 | 7 | 1 | 1 | 7 | 4 | 3 | 42.86 % |", table)
        self.assertIn(
            "test_bad_through_fargpu` | failed | failed | AssertionError: the cause", table
        )
        self.assertNotIn("test_bad_natively", table)

    def test_mistakes_are_one_line_and_leave_nothing(self):
        (self.folder / "tmp").mkdir()
        in_place = f"cuda-python={self.folder}"
        malformed = self.folder / "malformed.json"
        malformed.write_text('{"cuda-python": {"a test": {"native": 1}}}')
        for script, words, *arguments in (
            ("suites", ["bin/fargpu", "--build-dir"], "--build-dir", self.folder, "cuda-python"),
            ("gpu-suite", ["bin/fargpu", "--build-dir"], "--build-dir", self.folder),
            ("suites", ["no suite is called nosuch", "cuda-python"], "nosuch"),
            ("suites", ["/no/folder is no folder"], "cuda-python=/no/folder"),
            ("suites", ["--python", "bin/no-python"], "--python", "bin/no-python", in_place),
            ("suites", ["/none.json"], "--resume", "/none.json", in_place),
            ("suites", [str(malformed)], "--native", malformed, in_place),
            ("suites", ["--results", "/no/folder"], "--results", "/no/folder/x", in_place),
        ):
            given = () if "--build-dir" in arguments else ("--build-dir", testing.BUILD.folder)
            done = testing.run(
                [sys.executable, testing.ROOT / "scripts" / script, *given, *arguments],
                env=testing.clean_environment(TMPDIR=self.folder / "tmp"),
            )
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def test_a_relative_python(self):
        (self.folder / "environment").mkdir()
        (self.folder / "environment" / "python").symlink_to(sys.executable)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder / "environment")
        done, table, _ = self.suites("def test_good():\n    pass\n", "--python", "./python")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_list_is_sound(self):
        apps = testing.ROOT / "tests" / "apps"
        rows = tomllib.loads((apps / "suites.toml").read_text())["suite"]
        names = [row["name"] for row in rows]
        self.assertEqual(len(names), len(set(names)))
        page = (testing.ROOT / "docs" / "testing.md").read_text()
        for row in rows:
            self.assertIn(f"| `{row['name']}` |", page)
            for part in row["parts"] if "own" in row else ():
                self.assertTrue((apps / row["own"] / part).exists(), part)

    def test_a_good_suite(self):
        done, table, _ = self.suites("def test_good():\n    pass\n")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("| 1 | 0 | 1 | 0 | 0 | 1 | 1 | 0 | 0.00 % |", table)

    def test_counts_only_what_is_chosen(self):
        tests = "def test_good():\n    pass\n\ndef test_bad():\n    assert False\n"
        done, table, found = self.suites(tests, PYTEST_ADDOPTS="-k good")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(set(found), {"test_good"})
        self.assertIn("| 1 | 0 | 1 | 0 | 0 | 1 | 1 | 0 | 0.00 % |", table)

    def test_nothing_collected_is_not_done(self):
        done, table, _ = self.suites("")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("nothing was collected", table)

    def test_budget_and_resuming(self):
        slow = (
            "import time\n\ndef test_slow():\n    time.sleep(600)\n\ndef test_good():\n    pass\n"
        )
        done, table, _ = self.suites(slow, "--budget", "20", "--limit", "100")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("| 2 | 2 |", table)
        before = self.folder / "before.json"
        good = {"outcome": "passed", "seconds": 1, "text": "", "alone": ""}
        name = "cuda/tests/test_all.py::test_slow"
        before.write_text(json.dumps({"cuda-python": {name: {"native": good, "fargpu": good}}}))
        done, table, _ = self.suites(slow, "--resume", before)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("| 2 | 0 | 2 | 0 | 0 | 2 | 2 | 0 | 0.00 % |", table)

    def test_a_known_native_side_stands(self):
        tests = (
            "import os\nimport pytest\n\nREMOTE = 'FARGPU_SERVER' in os.environ\n\n"
            "@pytest.mark.parametrize('number', range(4))\ndef test_some(number):\n"
            "    assert REMOTE, 'not natively again'\n"
        )
        before = self.folder / "before.json"
        outcomes = ("passed", "passed", "failed", "passed")
        names = [f"cuda/tests/test_all.py::test_some[{number}]" for number in range(4)]
        lost = {"outcome": "failed", "seconds": 1, "text": "E over another", "alone": ""}
        before.write_text(
            json.dumps(
                {
                    "cuda-python": {
                        name: {"native": lost | {"outcome": outcome}, "fargpu": lost}
                        for name, outcome in zip(names, outcomes, strict=True)
                    }
                }
            )
        )
        done, table, found = self.suites(tests, "--native", before, "--transport", "tcp")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("| 4 | 0 | 3 | 1 | 0 | 3 | 3 | 0 | 0.00 % |", table)
        self.assertIn("over `tcp`", table)
        self.assertEqual(found["test_some[0]"]["fargpu"]["outcome"], "passed")
        self.assertNotIn("fargpu", found["test_some[2]"])
        done, table, found = self.suites(tests, "--native", before, "--every", "3")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("| 2 | 0 | 2 | 0 | 0 | 2 | 2 | 0 | 0.00 % |", table)
        self.assertEqual(set(found), {"test_some[0]", "test_some[3]"})


if __name__ == "__main__":
    testing.main()
