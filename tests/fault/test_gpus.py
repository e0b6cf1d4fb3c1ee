"""GPUs whose driver hangs or fails: out of service, which is shown, and back by themselves."""

import contextlib
import os
import pathlib
import re
import signal
import tempfile
import unittest

import fargpu_testing as testing

NO_ROOM = 75


def program():
    return testing.BUILD.folder / "tests" / "fault" / "fault_program"


class Gpus(unittest.TestCase):
    @contextlib.contextmanager
    def host(self, *flags, gpus=2):
        """A daemon whose driver obeys files in a folder."""
        driver = testing.BUILD.folder / "tests" / "programs" / "slow_driver.so"
        with tempfile.TemporaryDirectory() as folder:
            self.folder = pathlib.Path(folder)
            environment = {"FARGPU_TEST_DRIVER_FOLDER": folder}
            daemon = testing.Daemon(*flags, gpus=gpus, environment=environment, driver=driver)
            with daemon:
                yield daemon

    def make(self, what, text=""):
        (self.folder / what).write_text(text)

    def query(self, daemon, command):
        done = testing.run(
            [testing.BUILD.fargpu, command, "--server", daemon.server],
            env=testing.clean_environment(),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def uuids(self, daemon):
        return re.findall(r"GPU-[-0-9a-f]+", self.query(daemon, "devices"))

    def run_on(self, daemon, gpu):
        return daemon.run(program(), flags=("--device", str(gpu)))

    def is_out(self, daemon, gpu, why):
        testing.wait_until(lambda: "event=gpu-out-of-service" in daemon.log_text(), "it is out")
        self.assertRegex(self.query(daemon, "devices"), f"out of service: .*{why}")
        done = self.run_on(daemon, gpu)
        self.assertEqual(done.returncode, NO_ROOM, done.stderr)
        self.assertRegex(done.stderr, f"GPU {gpu} is out of service: .*{why}")

    def comes_back(self, daemon, gpu):
        testing.wait_until(lambda: "event=gpu-back" in daemon.log_text(), "it is back")
        self.assertNotIn("out of service", self.query(daemon, "devices"))
        done = self.run_on(daemon, gpu)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_one_that_fell_off_the_bus(self):
        """Found by the workers that are started ahead; the other GPU goes on."""
        with self.host("--workers-ahead", "1") as daemon:
            testing.wait_until(lambda: len(daemon.workers_ahead()) == 2, "workers are ahead")
            self.make("only", self.uuids(daemon)[0])
            self.make("fail")
            for pid in daemon.workers_ahead():
                os.kill(pid, signal.SIGKILL)
            self.is_out(daemon, 0, "CUDA_ERROR_SYSTEM_NOT_READY")
            for _ in range(2):
                done = daemon.run(program())
                self.assertEqual(done.returncode, 0, done.stderr)
            (self.folder / "fail").unlink()
            self.comes_back(daemon, 0)
            testing.wait_until(lambda: len(daemon.workers_ahead()) == 2, "workers are ahead")

    def test_one_that_fails_a_session(self):
        with self.host("--workers-ahead", "0", gpus=1) as daemon:
            self.make("fail")
            self.assertNotEqual(daemon.run(program()).returncode, 0)
            self.is_out(daemon, 0, "CUDA_ERROR_SYSTEM_NOT_READY")
            (self.folder / "fail").unlink()
            self.comes_back(daemon, 0)

    def test_one_whose_driver_hangs(self):
        """Its job is shown with it; the daemon ends in time all the same."""
        with self.host("--workers-ahead", "0", "--worker-start", "2s", gpus=1) as daemon:
            held = daemon.start("sleep", "600")
            self.addCleanup(held.communicate)
            self.addCleanup(held.kill)
            testing.wait_until(lambda: "event=job-begin" in daemon.log_text(), "a job is there")
            self.make("hold")
            done = daemon.run(program())
            self.assertNotEqual(done.returncode, 0)
            self.is_out(daemon, 0, "does not open within 2 s")
            self.assertIn("    out of service: its driver does not open", self.query(daemon, "ps"))
            (self.folder / "hold").unlink()
            self.comes_back(daemon, 0)
            self.make("hold")
            daemon.run(program())
            testing.wait_until(lambda: daemon.log_text().count("out-of-service") == 2, "out again")
            daemon.process.terminate()
            held.kill()
            self.assertEqual(daemon.process.wait(timeout=10), 0)


if __name__ == "__main__":
    testing.main()
