"""Managed memory when the process, the server, the context or a fork gets between the kernel that
wrote it and the host that uses it; with faults that are messages (userfaultfd) and signals."""

import os
import pathlib
import signal
import subprocess
import unittest

import fargpu_testing as testing


def managed_line(daemon, mode, **options):
    doctor = testing.run(
        [testing.BUILD.fargpu, "doctor", "--server", daemon.server],
        env=testing.clean_environment(FARGPU_MANAGED=mode),
        **options,
    )
    (line,) = (each for each in doctor.stdout.splitlines() if " managed " in each)
    return line


def has_adapter():
    names = ("infiniband/uverbs*", "hfi1*", "cxi*", "kgni*", "vfio/[0-9]*")
    return any(any(pathlib.Path("/dev").glob(name)) for name in names)


def is_for_everybody(program):
    """Whether each user may start it."""
    program = program.resolve()
    return all(path.stat().st_mode & 0o001 for path in (program, *program.parents))


@testing.not_with_an_older_release("it does not know these values of FARGPU_MANAGED")
class ManagedMemory(unittest.TestCase):
    def setUp(self):
        self.daemon = testing.Daemon().__enter__()
        self.addCleanup(self.daemon.__exit__, None, None, None)
        self.is_served = "also for system calls" in managed_line(self.daemon, "touched")

    def modes(self):
        return ("userfaultfd", "signal") if self.is_served else ("signal",)

    def need_served(self):
        if not self.is_served:
            self.skipTest("the system does not let a process serve its faults")

    def run_way(self, way, mode, *more):
        return self.daemon.run(
            testing.BUILD.program("managed_memory_ends"),
            way,
            *more,
            env=testing.clean_environment(FARGPU_MANAGED=mode),
        )

    def start_and_lose(self, mode, *more):
        """The worker is killed before the memory is used."""
        process = self.daemon.start(
            testing.BUILD.program("managed_memory_ends"),
            "lost",
            *more,
            env=testing.clean_environment(FARGPU_MANAGED=mode),
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
        for mode, words in (
            ("signal", "(FARGPU_MANAGED=signal)"),
            ("eager", "eager: fetched at every synchronisation (FARGPU_MANAGED=eager)"),
        ):
            self.assertIn(words, managed_line(self.daemon, mode))
        if self.is_served:
            self.assertIn("(userfaultfd)", managed_line(self.daemon, "userfaultfd"))
            self.assertIn("(userfaultfd)", managed_line(self.daemon, "touched"))
            if not has_adapter():
                self.assertIn("(userfaultfd)", managed_line(self.daemon, ""))
            else:
                self.assertIn("this host has an adapter", managed_line(self.daemon, ""))

    def test_what_the_system_refuses(self):
        """Whoever wants it hears why; by default programs go on without it."""
        user = {}
        if self.is_served:
            if os.geteuid() != 0 or os.stat("/dev/userfaultfd").st_mode & 0o006:
                self.skipTest("nobody here may not serve faults")
            if read("/proc/sys/vm/unprivileged_userfaultfd") != "0":
                self.skipTest("every user may serve faults")
            programs = [testing.BUILD.fargpu, testing.BUILD.program("managed_memory_ends")]
            if not all(is_for_everybody(program) for program in programs):
                self.skipTest("another user cannot start what was built")
            user = {"user": 65534, "extra_groups": []}
        self.assertRegex(
            managed_line(self.daemon, "userfaultfd", **user),
            "^FAIL +managed +FARGPU_MANAGED=userfaultfd: .*userfaultfd",
        )
        self.assertIn("not for system calls", managed_line(self.daemon, "touched", **user))
        done = testing.run(
            [testing.BUILD.fargpu, "run", "--server", self.daemon.server, "--"]
            + [testing.BUILD.program("managed_memory_ends"), "blocked"],
            env=testing.clean_environment(FARGPU_MANAGED="userfaultfd"),
            **user,
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("FARGPU_MANAGED=userfaultfd: ", done.stderr)

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
        code, out, errors = self.start_and_lose("userfaultfd", "write")
        self.assertEqual((code, out), (0, "write: Bad address\n"), errors)
        done = self.run_way("error", "userfaultfd")
        self.assertEqual(done.stdout, "ready\nwrite: Bad address\n", done.stderr)
        self.assertIn("cannot be fetched", done.stderr)

    def test_no_handler_is_needed(self):
        self.need_served()
        done = self.run_way("blocked", "userfaultfd")
        self.assertEqual((done.returncode, done.stdout), (0, "ready\nseen\n"), done.stderr)
        self.assertEqual(self.run_way("handler", "userfaultfd").stdout, "ready\nnone\n")
        self.assertEqual(self.run_way("handler", "signal").stdout, "ready\none\n")


def read(path):
    with open(path) as file:
        return file.read().strip()


if __name__ == "__main__":
    testing.main()
