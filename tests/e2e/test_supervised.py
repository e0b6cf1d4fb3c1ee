"""Programs that run as a child of `fargpu run`: as the first process of a container, or where the
system has no pidfd_open()."""

import os
import pathlib
import resource
import signal
import subprocess
import sys
import unittest

import fargpu_testing as testing

# Run before `fargpu`, which takes their process over.
ADOPTS_ORPHANS = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
os.execv(sys.argv[1], sys.argv[1:])
"""
# By a filter of system calls, as containers have them: EPERM for number 434.
NO_PIDFD_OPEN = """
import ctypes, os, struct, sys
prctl = ctypes.CDLL(None).prctl
steps = ((0x20, 0, 0, 0), (0x15, 0, 1, 434), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
if prctl(38, 1, 0, 0, 0) != 0 or prctl(22, 2, program, 0, 0) != 0:
    sys.exit("no filters of system calls here")
os.execv(sys.argv[1], sys.argv[1:])
"""
# Says "ready", then each signal as it comes, until one ends it. Does what it ought to for none. By
# os.write(): the next signal may come inside the handler, where print() may not be entered again.
SAYS_SIGNALS = """
import os, signal
for number in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}):
    signal.signal(number, lambda number, frame: os.write(1, b"%d\\n" % number))
os.write(1, b"ready\\n")
while True: signal.pause()
"""
# Has a child's child that ends after it has lost its parent; stays until its stdin ends.
LEAVES_AN_ORPHAN = """
import os, sys, time
if os.fork() == 0:
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent: time.sleep(0.01)
        print(os.getpid(), os.getppid(), flush=True)
    os._exit(0)
os.wait()
sys.stdin.read()
"""


class Supervised(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = testing.Daemon().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None)

    def command(self, before, *program):
        run = [testing.BUILD.fargpu, "run", "--server", self.daemon.server, "--", *program]
        return [sys.executable, "-c", before, *map(str, run)]

    def start(self, command, **options):
        started = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=testing.clean_environment(),
            **options,
        )
        self.addCleanup(started.communicate)
        self.addCleanup(lambda: started.poll() is None and started.kill())
        return started

    @staticmethod
    def children(pid):
        return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    @staticmethod
    def is_stopped(pid):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

    def test_every_signal_reaches_the_program(self):
        ways = {
            "container": self.command(ADOPTS_ORPHANS),
            "simulator": [testing.BUILD.fargpu, "run", "--sim", "--"],
        }
        numbers = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
        self.assertGreaterEqual(len(numbers), 60)
        for name, start in ways.items():
            with self.subTest(name):
                process = self.start([*start, sys.executable, "-c", SAYS_SIGNALS])
                self.assertEqual(process.stdout.readline(), "ready\n")
                for number in numbers:
                    process.send_signal(number)
                    self.assertEqual(process.stdout.readline(), f"{int(number)}\n")
                (child,) = self.children(process.pid) if name == "container" else (None,)
                process.kill()
                process.wait(testing.LIMIT)
                if child:
                    testing.wait_until(lambda c=child: not testing.is_running(c), "it ended too")

    def test_stopped_and_continued_with_its_program(self):
        process = self.start(self.command(ADOPTS_ORPHANS, "sh", "-c", "echo ready; exec cat"))
        self.assertEqual(process.stdout.readline(), "ready\n")
        (child,) = self.children(process.pid)
        for _ in range(3):
            # Not SIGTSTP, which a process group without a shell's control ignores.
            os.kill(int(child), signal.SIGSTOP)
            for pid in (child, process.pid):
                testing.wait_until(lambda p=pid: self.is_stopped(p), "both are stopped")
            process.send_signal(signal.SIGCONT)
            for pid in (child, process.pid):
                testing.wait_until(lambda p=pid: not self.is_stopped(p), "both go on")
        self.assertEqual(process.communicate("more")[0], "more")
        self.assertEqual(process.returncode, 0)

    def test_goes_on_with_a_program_that_is_continued_alone(self):
        process = self.start(self.command(ADOPTS_ORPHANS, "sh", "-c", "echo ready; exec cat"))
        self.assertEqual(process.stdout.readline(), "ready\n")
        (child,) = self.children(process.pid)
        for _ in range(3):
            os.kill(int(child), signal.SIGSTOP)
            testing.wait_until(lambda: self.is_stopped(process.pid), "both are stopped")
            os.kill(int(child), signal.SIGCONT)
            testing.wait_until(lambda: not self.is_stopped(process.pid), "both go on")
        testing.wait_until(lambda: self.children(process.pid) == [child], "nobody else is left")
        self.assertEqual(process.communicate("more")[0], "more")
        self.assertEqual(process.returncode, 0)

    def test_orphans_are_reaped(self):
        process = self.start(self.command(ADOPTS_ORPHANS, sys.executable, "-c", LEAVES_AN_ORPHAN))
        orphan, parent = map(int, process.stdout.readline().split())
        self.assertEqual(parent, process.pid)
        testing.wait_until(lambda: len(self.children(process.pid)) == 1, "the orphan is reaped")
        self.assertFalse(pathlib.Path(f"/proc/{orphan}").exists())
        process.communicate()
        self.assertEqual(process.returncode, 0)

    def test_without_pidfd_open(self):
        ranks = testing.BUILD.program("ranks")
        done = testing.run(self.command(NO_PIDFD_OPEN, ranks, "rank", 0))
        if "no filters" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        process = self.start(self.command(NO_PIDFD_OPEN, "cat"))
        testing.wait_until(lambda: self.children(process.pid), "the program is a child")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(testing.LIMIT), -signal.SIGTERM)

    def test_many_descriptors_below_a_small_limit(self):
        # The usual soft limit, nearly used up by what the program inherits.
        limits = (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        inherited = []
        self.addCleanup(lambda: [os.close(fd) for fd in inherited])

        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        for _ in range(900):
            inherited.append(os.dup(2))
            os.set_inheritable(inherited[-1], True)
        ranks = testing.BUILD.program("ranks")
        run = [testing.BUILD.fargpu, "run", "--server", self.daemon.server, "--", ranks, "rank", 0]
        for command in (run, self.command(ADOPTS_ORPHANS, ranks, "rank", 0)):
            done = testing.run(command, close_fds=False, preexec_fn=few)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    testing.main()
