"""Mapped memory over a network, when the process, the server or a fork gets between the kernel that
wrote it and the host that reads it; as it comes when it is touched, and with every
synchronisation."""

import os
import signal
import subprocess
import unittest

import fargpu_testing as testing


def comes_when_touched(daemon):
    doctor = testing.run(
        [testing.BUILD.fargpu, "doctor", "--server", daemon.server],
        env=testing.clean_environment(FARGPU_MAPPED="touched"),
    )
    (line,) = (each for each in doctor.stdout.splitlines() if " mapped " in each)
    return "touched" in line


class MappedMemory(unittest.TestCase):
    def run_way(self, daemon, way, mode):
        return daemon.run(
            testing.BUILD.program("mapped_memory_ends"),
            way,
            env=testing.clean_environment(FARGPU_MAPPED=mode),
        )

    def test_read_at_exit_and_beside_copies(self):
        with testing.Daemon() as daemon:
            for mode in ("touched", "eager"):
                for way in ("exit", "later", "copied"):
                    with self.subTest(way, mode=mode):
                        done = self.run_way(daemon, way, mode)
                        self.assertEqual(done.returncode, 0, done.stderr)
                        self.assertEqual(done.stdout, "ready\nseen\n")

    def test_forked_child(self):
        with testing.Daemon() as daemon:
            if not comes_when_touched(daemon):
                self.skipTest("the system does not let a process serve its faults")
            done = self.run_way(daemon, "fork", "touched")
            self.assertEqual(done.stdout, "ready\nchild: signal 11\nseen\n", done.stderr)

    def test_lost_server(self):
        with testing.Daemon() as daemon:
            if not comes_when_touched(daemon):
                self.skipTest("the system does not let a process serve its faults")
            process = daemon.start(
                testing.BUILD.program("mapped_memory_ends"),
                "lost",
                env=testing.clean_environment(FARGPU_MAPPED="touched"),
                stdin=subprocess.PIPE,
            )
            self.assertEqual(process.stdout.readline(), "ready\n")
            # That of doctor may take its time to end.
            testing.wait_until(lambda: len(daemon.workers()) == 1, "one worker is left")
            (worker,) = daemon.workers()
            os.kill(worker, signal.SIGKILL)
            testing.wait_until(lambda: not daemon.workers(), "the worker is gone")
            out, errors = process.communicate("\n", timeout=testing.LIMIT)
            self.assertEqual(process.returncode, -signal.SIGSEGV, out + errors)
            self.assertNotIn("seen", out)
            self.assertIn("cannot be fetched", errors)


if __name__ == "__main__":
    testing.main()
