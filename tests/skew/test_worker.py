"""A daemon whose workers are of another release: the worker that runs is that one, and the daemon
has from it what it shows: the GPUs, and what a session is."""

import os
import sys
import unittest

import fargpu_testing as testing


class Worker(unittest.TestCase):
    def test_a_session(self):
        with testing.Daemon(gpus=2) as daemon:
            devices = testing.run([testing.BUILD.fargpu, "devices", "--server", daemon.server])
            self.assertEqual(devices.returncode, 0, devices.stderr)
            self.assertEqual(devices.stdout.count("GPU-"), 2, devices.stdout)
            stays, ends = os.pipe()
            program = daemon.start(
                testing.BUILD.program("steady_work"), str(stays), pass_fds=(stays,)
            )
            os.close(stays)
            try:
                testing.wait_until(daemon.workers, "a worker")
                (worker,) = daemon.workers()
                self.assertEqual(os.readlink(f"/proc/{worker}/exe"), str(testing.BUILD.worker))
                listed = testing.run([testing.BUILD.fargpu, "ps", "--server", daemon.server])
                self.assertIn("1 jobs\n1 sessions", listed.stdout, listed.stderr)
            finally:
                os.close(ends)
                output, errors = program.communicate(timeout=testing.LIMIT)
            self.assertEqual(program.returncode, 0, output + errors)

    def test_nvml(self):
        """Either end of the server lacks management sessions: the daemon refuses them by their
        opcode, a worker ends before it answers."""
        with testing.Daemon() as daemon:
            done = daemon.run(sys.executable, "-c", testing.NVML_INIT)
            code = {"daemon": 18, "worker": 9}[os.environ["FARGPU_TEST_OLD"]]
            self.assertEqual(done.stdout, f"{code} 1\n")  # LIB_RM_VERSION_MISMATCH, NOT_LOADED
            (line,) = done.stderr.splitlines()
            self.assertIn("NVML is not available", line)


if __name__ == "__main__":
    testing.main()
