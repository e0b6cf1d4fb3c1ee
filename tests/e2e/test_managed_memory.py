"""Managed memory when the process, the server, the context or a fork gets between the kernel that
wrote it and the host that uses it; with faults that are messages (userfaultfd) and signals."""

import os
import pathlib
import signal
import subprocess
import unittest

import fargpu_testing as testing

MODES = {
    "served": {"FARGPU_MANAGED": "touched"},
    "signals": {"FARGPU_TEST_USERFAULTFD": "refused"},
}


def managed_line(daemon, **settings):
    doctor = testing.run(
        [testing.BUILD.fargpu, "doctor", "--server", daemon.server],
        env=testing.clean_environment(**settings),
    )
    (line,) = (each for each in doctor.stdout.splitlines() if " managed " in each)
    return line


def has_adapter():
    names = ("infiniband/uverbs*", "hfi1*", "cxi*", "kgni*", "vfio/[0-9]*")
    return any(any(pathlib.Path("/dev").glob(name)) for name in names)


@testing.not_with_an_older_release("it does not know these values of FARGPU_MANAGED")
class ManagedMemory(unittest.TestCase):
    def setUp(self):
        self.daemon = testing.Daemon().__enter__()
        self.addCleanup(self.daemon.__exit__, None, None, None)
        self.is_served = "also for system calls" in managed_line(self.daemon, **MODES["served"])

    def modes(self):
        return tuple(MODES) if self.is_served else ("signals",)

    def need_served(self):
        if not self.is_served:
            self.skipTest("the system does not let a process serve its faults")

    def run_way(self, way, mode, *more):
        return self.daemon.run(
            testing.BUILD.program("managed_memory_ends"),
            way,
            *more,
            env=testing.clean_environment(**MODES[mode]),
        )

    def start_and_lose(self, mode, *more):
        """The worker is killed before the memory is used."""
        process = self.daemon.start(
            testing.BUILD.program("managed_memory_ends"),
            "lost",
            *more,
            env=testing.clean_environment(**MODES[mode]),
            stdin=subprocess.PIPE,
        )
        self.assertEqual(process.stdout.readline(), "ready\n")
        # That of doctor may take its time to end.
        testing.wait_until(lambda: len(self.daemon.workers()) == 1, "one worker is left")
        (worker,) = self.daemon.workers()
        os.kill(worker, signal.SIGKILL)
        testing.wait_until(lambda: not self.daemon.workers(), "the worker is gone")
        out, errors = process.communicate("\n", timeout=testing.LIMIT)
        return process.returncode, out, errors

    def test_which_way(self):
        refused = MODES["signals"]
        self.assertIn(
            "eager: fetched at every synchronisation (FARGPU_MANAGED=eager)",
            managed_line(self.daemon, FARGPU_MANAGED="eager"),
        )
        for mode in ("", "auto", "touched"):
            line = managed_line(self.daemon, FARGPU_MANAGED=mode, **refused)
            self.assertRegex(line, "on access, but not for system calls .*userfaultfd")
        if self.is_served:
            self.assertIn("(userfaultfd)", managed_line(self.daemon, **MODES["served"]))
            if not has_adapter():
                self.assertIn("(userfaultfd)", managed_line(self.daemon))
            else:
                self.assertIn("this host has an adapter", managed_line(self.daemon))

    def test_old_names(self):
        for old, name in (("userfaultfd", "touched"), ("signal", "eager")):
            line = f"FARGPU_MANAGED={old} is FARGPU_MANAGED={name} now"
            self.assertIn(line, managed_line(self.daemon, FARGPU_MANAGED=old))
            done = self.daemon.run(
                testing.BUILD.program("managed_memory_ends"),
                "exit",
                env=testing.clean_environment(FARGPU_MANAGED=old),
            )
            self.assertEqual((done.returncode, done.stdout), (0, "ready\n"), done.stderr)
            self.assertEqual(done.stderr.count(line), 1, done.stderr)

    def test_exit_beside_accesses(self):
        for mode in self.modes():
            with self.subTest(mode=mode):
                done = self.run_way("exit", mode)
                self.assertEqual((done.returncode, done.stdout), (0, "ready\n"), done.stderr)

    def test_forked_child(self):
        for mode in self.modes():
            with self.subTest(mode=mode):
                done = self.run_way("fork", mode)
                self.assertEqual(done.stdout, "ready\nchild: signal 11\nseen\n", done.stderr)
                self.assertIn("is the parent's: a forked process has none of it", done.stderr)

    def test_lost_server(self):
        for mode in self.modes():
            with self.subTest(mode=mode):
                code, out, errors = self.start_and_lose(mode)
                self.assertEqual(code, -signal.SIGSEGV, out + errors)
                self.assertEqual(out, "")
                self.assertIn("cannot be fetched", errors)

    def test_system_calls_of_a_lost_server_and_context(self):
        self.need_served()
        code, out, errors = self.start_and_lose("served", "write")
        self.assertEqual((code, out), (0, "write: Bad address\n"), errors)
        done = self.run_way("error", "served")
        self.assertEqual(done.stdout, "ready\nwrite: Bad address\n", done.stderr)
        self.assertIn("cannot be fetched", done.stderr)

    def test_no_handler_is_needed(self):
        self.need_served()
        done = self.run_way("blocked", "served")
        self.assertEqual((done.returncode, done.stdout), (0, "ready\nseen\n"), done.stderr)
        self.assertEqual(self.run_way("handler", "served").stdout, "ready\nnone\n")
        self.assertEqual(self.run_way("handler", "signals").stdout, "ready\none\n")


if __name__ == "__main__":
    testing.main()
