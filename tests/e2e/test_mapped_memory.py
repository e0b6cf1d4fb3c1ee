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
    return "on access" in line


class MappedMemory(unittest.TestCase):
    def run_way(self, daemon, way, mode, *kind):
        return daemon.run(
            testing.BUILD.program("mapped_memory_ends"),
            way,
            *kind,
            env=testing.clean_environment(FARGPU_MAPPED=mode),
        )

    def test_read_at_exit_and_beside_copies(self):
        with testing.Daemon() as daemon:
            for mode in ("touched", "eager"):
                for way in ("exit", "later", "copied"):
                    for kind in ([], ["registered"]):
                        with self.subTest(way, mode=mode, kind=kind):
                            done = self.run_way(daemon, way, mode, *kind)
                            self.assertEqual(done.returncode, 0, done.stderr)
                            self.assertEqual(done.stdout, "ready\nseen\n")

    def test_a_limit_of_files_does_not_end_the_process(self):
        """Shared memory is a file to the system. Beyond RLIMIT_FSIZE it would raise SIGXFSZ."""
        with testing.Daemon() as daemon:
            for kind in ([], ["registered"]):
                for transport in ("shm", "tcp"):
                    with self.subTest(transport, kind=kind):
                        done = daemon.run(
                            *("bash", "-c", 'ulimit -f 4; exec "$@"', "limited"),
                            testing.BUILD.program("mapped_memory_ends"),
                            *("exit", *kind),
                            flags=("--transport", transport),
                        )
                        self.assertEqual(done.returncode, 0, done.stderr)
                        self.assertEqual(done.stdout, "ready\nseen\n")

    def test_forked_child(self):
        with testing.Daemon() as daemon:
            if not comes_when_touched(daemon):
                self.skipTest("the system does not let a process serve its faults")
            done = self.run_way(daemon, "fork", "touched")
            self.assertEqual(done.stdout, "ready\nchild: signal 11\nseen\n", done.stderr)
            # It is the program's own memory, which a child has natively.
            done = self.run_way(daemon, "fork", "touched", "registered")
            self.assertEqual(done.stdout, "ready\nchild: exit 0\nseen\n", done.stderr)

    def after_loss(self, *kind):
        with testing.Daemon() as daemon:
            if not comes_when_touched(daemon):
                self.skipTest("the system does not let a process serve its faults")
            process = daemon.start(
                testing.BUILD.program("mapped_memory_ends"),
                "lost",
                *kind,
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
            self.assertNotIn("seen", out)
            return process.returncode, out + errors

    def test_lost_server(self):
        code, output = self.after_loss()
        self.assertEqual(code, -signal.SIGSEGV, output)
        self.assertIn("cannot be fetched", output)

    def test_registered_memory_of_a_lost_server_stays_readable(self):
        code, output = self.after_loss("registered")
        self.assertEqual(code, 1, output)  # the kernel's numbers are not there
        self.assertIn("memory[at]", output)


if __name__ == "__main__":
    testing.main()
