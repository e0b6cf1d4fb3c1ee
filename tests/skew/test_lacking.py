"""What one end of a session lacks, because it is of the previous release: that function is refused
by name, and everything else works. The function is one that is younger than that release."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import fargpu_testing as testing

FUNCTION = "cuDeviceGetGraphMemAttribute"


class Lacking(unittest.TestCase):
    def test_a_younger_function(self):
        with testing.Daemon() as daemon:
            done = daemon.run(testing.BUILD.program("graph_memory"))
        self.assertEqual(
            done.stdout.splitlines(),
            ["CUDA_ERROR_NOT_SUPPORTED 1"] * 2 + ["everything else works"],
            done.stderr,
        )
        named = [line for line in done.stderr.splitlines() if FUNCTION in line]
        self.assertEqual(len(named), 1, done.stderr)  # once, not at every call
        if os.environ["FARGPU_TEST_OLD"] == "server":
            self.assertIn("is not known to the server", named[0])

    def test_nvml(self):
        """A server without management sessions refuses them by their opcode."""
        if os.environ["FARGPU_TEST_OLD"] == "client":
            self.skipTest("that release has no NVML")
        with testing.Daemon() as daemon:
            done = daemon.run(sys.executable, "-c", testing.NVML_INIT)
            self.assertEqual(done.stdout, "18 1\n", done.stderr)  # LIB_RM_VERSION_MISMATCH
            (line,) = done.stderr.splitlines()
            self.assertIn("NVML is not available", line)
            self.assertIn("install a newer release on the server", line)
            # The job and its CUDA sessions are as they were.
            self.assertEqual(daemon.run(testing.BUILD.program("graph_memory")).returncode, 0)

    def test_timeline(self):
        """There is no lane of the worker then, and the trace says so."""
        if os.environ["FARGPU_TEST_OLD"] == "client":
            self.skipTest("that release makes no timeline")
        with tempfile.TemporaryDirectory() as folder, testing.Daemon() as daemon:
            file = pathlib.Path(folder) / "calls.json"
            environment = testing.clean_environment(FARGPU_TRACE=str(file))
            program = testing.BUILD.program("waits")
            done = daemon.run(program, "3", "0", "1", "0", env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            events = json.loads(file.read_text())
        self.assertIn("this server's release makes no timeline", done.stderr)
        self.assertIn("this server's release makes no timeline", [e["name"] for e in events])
        self.assertEqual({e["cat"] for e in events if "cat" in e}, {"cuda", "timeline"})

    def test_doctor(self):
        with testing.Daemon() as daemon:
            done = testing.run([testing.BUILD.fargpu, "doctor", "--server", daemon.server])
        if os.environ["FARGPU_TEST_OLD"] == "server":
            self.assertIn("the server does not know", done.stdout, done.stderr)
        else:
            self.assertNotIn("does not know", done.stdout, done.stderr)


if __name__ == "__main__":
    testing.main()
