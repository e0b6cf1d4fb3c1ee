"""How programs end: exit codes, signals, passing signals on, with a server and with a private
daemon (--sim)."""

import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import fargpu_testing as testing


class Endings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = testing.Daemon().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None)

    def ways(self):
        """The two ways to start: (name, command before the program)."""
        fargpu = testing.BUILD.fargpu
        return [
            ("server", [fargpu, "run", "--server", self.daemon.server, "--"]),
            ("sim", [fargpu, "run", "--sim", "--"]),
        ]

    def test_exit_codes(self):
        program = testing.BUILD.program("ending")
        for name, start in self.ways():
            for arguments, code in [
                (("exit", "0"), 0),
                (("exit", "7"), 7),
                (("exit", "255"), 255),
                (("return",), 0),
            ]:
                with self.subTest(way=name, arguments=arguments):
                    done = testing.run([*start, program, *arguments])
                    self.assertEqual(done.returncode, code, done.stderr)
                    self.assertEqual(done.stdout, "ready\n")

    def test_exit_codes_of_plain_programs(self):
        for name, start in self.ways():
            with self.subTest(way=name):
                self.assertEqual(testing.run([*start, "sh", "-c", "exit 41"]).returncode, 41)
                self.assertEqual(
                    testing.run([*start, "sh", "-c", "kill -TERM $$"]).returncode, -signal.SIGTERM
                )

    def test_death_by_signal(self):
        program = testing.BUILD.program("ending")
        for name, start in self.ways():
            for arguments, number in [
                (("abort",), signal.SIGABRT),
                (("kill", "9"), signal.SIGKILL),
                (("kill", "11"), signal.SIGSEGV),
            ]:
                with self.subTest(way=name, arguments=arguments):
                    done = testing.run([*start, program, *arguments])
                    self.assertEqual(done.returncode, -number, done.stderr)

    def test_shell_sees_128_plus_signal(self):
        for name, start in self.ways():
            with self.subTest(way=name):
                line = " ".join(map(str, start)) + " sh -c 'kill -USR1 $$'; echo $?"
                self.assertEqual(
                    testing.run(["bash", "-c", line]).stdout.splitlines()[-1],
                    str(128 + signal.SIGUSR1),
                )

    def signalled(self, start, arguments, number):
        process = subprocess.Popen(
            [str(a) for a in (*start, *arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=testing.clean_environment(),
        )
        with process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(number)
            return process.wait(testing.LIMIT)

    def test_signals_reach_the_program(self):
        program = testing.BUILD.program("ending")
        for name, start in self.ways():
            with self.subTest(way=name):
                self.assertEqual(self.signalled(start, [program, "handle"], signal.SIGTERM), 33)
                self.assertEqual(
                    self.signalled(start, [program, "wait"], signal.SIGINT), -signal.SIGINT
                )
                self.assertEqual(
                    self.signalled(start, [program, "wait"], signal.SIGKILL), -signal.SIGKILL
                )

    def test_signals_reach_plain_programs(self):
        script = "trap 'echo got; exit 9' USR2 HUP; echo ready; while :; do sleep 0.05; done"
        for name, start in self.ways():
            for number in (signal.SIGUSR2, signal.SIGHUP):
                with self.subTest(way=name, signal=number):
                    self.assertEqual(self.signalled(start, ["bash", "-c", script], number), 9)

    def test_stops_and_goes_on_as_one_program(self):
        """SIGSTOP, and what Ctrl-Z sends, stop the program that the shell sees, and it goes on."""
        # One process: a shell that vforks is not stopped while its child is, before the exec.
        script = "import time; print('ready')\nwhile True: time.sleep(0.02); print('on')"
        for name, start in self.ways():
            with self.subTest(way=name):
                process = subprocess.Popen(
                    [str(a) for a in (*start, sys.executable, "-u", "-c", script)],
                    stdout=subprocess.PIPE,
                    env=testing.clean_environment(),
                    process_group=0,
                )
                self.addCleanup(process.wait)
                self.addCleanup(lambda p=process: p.poll() is None and p.kill())
                with process.stdout:
                    self.assertEqual(process.stdout.readline(), b"ready\n")
                    for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGSTOP):
                        os.killpg(process.pid, number)
                        state = stopped_or_ended(process.pid)
                        self.assertTrue(os.WIFSTOPPED(state))
                        self.assertEqual(os.WSTOPSIG(state), number)
                        written = waiting_bytes(process.stdout)
                        time.sleep(0.3)
                        self.assertEqual(waiting_bytes(process.stdout), written)
                        os.killpg(process.pid, signal.SIGCONT)
                        testing.wait_until(
                            lambda p=process, w=written: waiting_bytes(p.stdout) > w, "it goes on"
                        )
                    process.terminate()
                    self.assertEqual(process.wait(testing.LIMIT), -signal.SIGTERM)

    def test_private_daemon_ends_with_its_command(self):
        with tempfile.TemporaryDirectory() as folder:
            done = testing.run(
                [testing.BUILD.fargpu, "run", "--sim", "--", "echo", "said"],
                env=testing.clean_environment(TMPDIR=folder),
            )
            self.assertEqual(done.stdout, "said\n", done.stderr)
            testing.wait_until(lambda: not private_daemons(folder), "the private daemon ended")
            testing.wait_until(lambda: not os.listdir(folder), "its folder is gone")

    def test_private_daemon_ends_when_fargpu_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            with subprocess.Popen(
                [
                    str(testing.BUILD.fargpu),
                    "run",
                    "--sim",
                    "--",
                    "bash",
                    "-c",
                    "echo $$; exec sleep 60",
                ],
                stdout=subprocess.PIPE,
                text=True,
                env=testing.clean_environment(TMPDIR=folder),
            ) as process:
                program = int(process.stdout.readline())
                self.assertEqual(len(private_daemons(folder)), 1)
                process.kill()
                process.wait(testing.LIMIT)
            testing.wait_until(lambda: not private_daemons(folder), "the private daemon ended")
            testing.wait_until(lambda: not testing.is_running(program), "the program ended")


def waiting_bytes(pipe):
    """How much a pipe holds that nobody has read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), "little")


def stopped_or_ended(pid):
    """The wait status of a child that has stopped or ended."""
    _, state = testing.wait_until(
        lambda: (seen := os.waitpid(pid, os.WUNTRACED | os.WNOHANG))[0] and seen,
        "it stopped or ended",
    )
    return state


def private_daemons(folder):
    """Process ids of the daemons whose files are in `folder`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            arguments = (
                (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if entry.name.isdigit()
                else []
            )
        except OSError:
            continue
        if (
            arguments[:1] == ["fargpud"]
            and any(a.startswith(folder) for a in arguments)
            and testing.is_running(entry.name)
        ):
            found.append(int(entry.name))
    return found


if __name__ == "__main__":
    testing.main()
