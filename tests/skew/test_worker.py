"""A daemon whose workers are of another release: the worker that runs is that one, and the daemon
has from it what it shows: the GPUs, and what a session is."""

import os
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


if __name__ == "__main__":
    testing.main()
