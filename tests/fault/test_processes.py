"""Processes that die: worker, daemon, client. The others notice at once, say so once, and the daemon serves the next session."""

import os
import signal
import subprocess
import unittest

import fargpu_testing as testing

LOST = "CUDA_ERROR_DEVICE_UNAVAILABLE"


def program():
    return testing.BUILD.folder / "tests" / "fault" / "fault_program"


class Session:
    """fault_program behind `fargpu run`, ready for commands."""

    def __init__(self, daemon, *flags):
        self.process = daemon.start(program(), flags=flags, stdin=subprocess.PIPE)
        line = self.process.stdout.readline()
        if line != "ready\n":
            self.process.kill()
            raise AssertionError(line + self.process.communicate()[1])

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        """Closes stdin, waits; (exit code, stderr)."""
        _, errors = self.process.communicate(timeout=testing.LIMIT)  # closes the pipes
        return self.process.returncode, errors


class Processes(unittest.TestCase):
    def serves(self, daemon):
        session = Session(daemon)
        self.assertEqual(session.ask("copy"), "copy: CUDA_SUCCESS")
        self.assertEqual(session.end()[0], 0)

    def is_lost(self, session, first="copy"):
        """Every further call fails, fast; the end does not hang; one line on stderr says why."""
        for command in (first, "set", "sync", "alloc", "copy", "free"):
            self.assertEqual(session.ask(command), f"{command}: {LOST}")
        code, errors = session.end()
        self.assertEqual(code, 0)
        lines = [line for line in errors.splitlines() if "lost" in line.lower() or "server" in line.lower()]
        self.assertEqual(len(lines), 1, errors)

    def test_worker_killed(self):
        with testing.Daemon() as daemon:
            session, other = Session(daemon), Session(daemon)
            workers = daemon.workers()
            self.assertEqual(len(workers), 2)
            os.kill(min(workers), signal.SIGKILL)
            testing.wait_until(lambda: len(daemon.workers()) == 1, "the worker is gone")
            answers = [s.ask("copy") for s in (session, other)]
            self.assertEqual(sorted(answers), [f"copy: {LOST}", "copy: CUDA_SUCCESS"])
            lost, living = (session, other) if LOST in answers[0] else (other, session)
            self.is_lost(lost)
            self.assertEqual(living.ask("alloc"), "alloc: CUDA_SUCCESS")
            self.assertEqual(living.end()[0], 0)
            self.serves(daemon)
            self.assertIn("worker", daemon.log_text())

    def test_daemon_killed(self):
        daemon = testing.Daemon().__enter__()
        try:
            session = Session(daemon)
            workers = daemon.workers()
            daemon.process.kill()
            daemon.process.wait()
            testing.wait_until(lambda: not any(testing.is_running(pid) for pid in workers), "no worker outlives its daemon")
            self.is_lost(session)
            done = daemon.run(program())
            self.assertEqual(done.returncode, 69, done.stderr)
        finally:
            daemon.__exit__(None)

    def test_client_killed(self):
        with testing.Daemon() as daemon:
            session = Session(daemon, "--memory", "64M")
            session.process.kill()
            session.process.communicate()
            testing.wait_until(lambda: not daemon.workers(), "the worker of a dead client ended")
            listing = testing.run([testing.BUILD.fargpu, "devices", "--server", daemon.server]).stdout
            self.assertEqual(listing.splitlines()[1].split()[-1], "0", listing)
            self.serves(daemon)

    def test_client_stopped_while_others_work(self):
        with testing.Daemon() as daemon:
            session = Session(daemon)
            session.process.send_signal(signal.SIGSTOP)
            self.serves(daemon)
            session.process.send_signal(signal.SIGCONT)
            self.assertEqual(session.ask("copy"), "copy: CUDA_SUCCESS")
            self.assertEqual(session.end()[0], 0)

    def test_daemon_drains(self):
        with testing.Daemon("--drain", "60s") as daemon:
            session = Session(daemon)
            daemon.process.terminate()
            testing.wait_until(lambda: daemon.run(program(), "init").returncode == 4, "no new session is taken")
            self.assertEqual(session.ask("copy"), "copy: CUDA_SUCCESS")  # the old one goes on
            self.assertEqual(session.end()[0], 0)
            self.assertEqual(daemon.process.wait(30), 0)

    def test_drain_has_a_limit(self):
        with testing.Daemon("--drain", "1s") as daemon:
            session = Session(daemon)
            daemon.process.terminate()
            daemon.process.wait(30)
            self.is_lost(session)

    def test_program_dies_in_the_middle_of_a_session(self):
        with testing.Daemon() as daemon:
            for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM):
                session = Session(daemon)
                session.process.send_signal(number)
                self.assertEqual(session.end()[0], -number)
            testing.wait_until(lambda: not daemon.workers(), "all workers ended")
            self.serves(daemon)


if __name__ == "__main__":
    testing.main()
