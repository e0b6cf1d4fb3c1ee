"""fargpud: exit codes where it cannot start, permissions of its sockets, and the lines of both."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import fargpu_testing as testing

FAILURE, USAGE, REFUSED = 1, 2, 77
NOBODY = 65534
# A program with a session, until its standard input ends.
WAITS = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
print("ready", flush=True)
sys.stdin.read()
"""


class Fargpud(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.folder.chmod(0o755)

    def fails(self, code, words, *arguments, **options):
        """It does not start; the last line is its own and has these words."""
        done = testing.run([testing.BUILD.fargpud, "--driver", "sim", *arguments], **options)
        self.assertEqual(done.returncode, code, done.stderr)
        last = done.stderr.splitlines()[-1]
        self.assertTrue(last.startswith("fargpud: "), done.stderr)
        for word in words:
            self.assertIn(word, last)

    def file(self, name, text, mode=0o600):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def test_wrong_usage(self):
        self.fails(USAGE, ["--bogus", "fargpud --help"], "--bogus")
        self.fails(USAGE, ["--sim-gpus", "99"], "--sim-gpus", "99")
        for mode in ("rw", "0888", "7777"):
            self.fails(USAGE, ["--socket-mode", mode], "--socket-mode", mode)

    def test_wrong_variables(self):
        for name in ("FARGPU_SPIN", "FARGPU_GPUDIRECT", "FARGPU_GPUDIRECT_FROM"):
            self.fails(USAGE, [name, "'x'"], env=testing.clean_environment(**{name: "x"}))
        with testing.Daemon(environment={"FARGPU_LOG": "loud"}) as daemon:
            self.assertEqual(daemon.run("true").returncode, 0)
            testing.wait_until(daemon.workers_ahead, "a worker ahead")
            self.assertEqual(daemon.log_text().count("FARGPU_LOG='loud'"), 1)

    def test_addresses_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            self.fails(FAILURE, ["in use"], "--listen", f"127.0.0.1:{other.getsockname()[1]}")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(self.folder / "socket"))
            other.listen()
            self.fails(FAILURE, ["another process"], "--listen", self.folder / "socket")

    def test_files_that_cannot_be_read(self):
        for path, why in ((self.folder, "Is a directory"), (self.folder / "none", "No such file")):
            self.fails(USAGE, [str(path), why], "--token-file", path)
        self.fails(USAGE, ["it is empty"], "--token-file", self.file("empty", ""))
        for mode, who in ((0o620, "its group"), (0o604, "everybody")):
            key = self.file("key.pem", "no key yet", mode)
            files = ("--tls-cert", key, "--tls-key", key)
            self.fails(USAGE, [f"TLS key {key}", who], *files)
        missing = str(self.folder / "none.pem")
        files = ("--tls-cert", missing, "--tls-key", missing)
        self.fails(USAGE, [missing, "No such file or directory"], *files)

    @unittest.skipUnless(os.geteuid() == 0, "only root becomes another user")
    def test_a_token_of_another_user(self):
        token = self.file("token", "a long token\n")
        self.fails(USAGE, [str(token), "Permission denied"], "--token-file", token, user=NOBODY)

    def test_an_address_for_others_without_a_token(self):
        with testing.Daemon("--listen", "0.0.0.0:0", "--listen", self.folder / "socket") as daemon:
            lines = [line for line in daemon.log_text().splitlines() if "open-to-everybody" in line]
            self.assertEqual(len(lines), 1, lines)
            self.assertRegex(lines[0], r"warning .*address=0\.0\.0\.0:0 .*--token-file")
        token = self.file("token", "a long token\n")
        with testing.Daemon("--listen", "0.0.0.0:0", "--token-file", token) as daemon:
            self.assertNotIn("open-to-everybody", daemon.log_text())

    @unittest.skipUnless(os.geteuid() == 0, "only root becomes another user")
    def test_who_may_use_a_socket(self):
        path = self.folder / "socket"
        program = testing.BUILD.folder / "tests" / "fault" / "fault_program"
        command = [testing.BUILD.fargpu, "run", "--server", f"unix:{path}", "--", program, "init"]
        for mode, group, code in (("0600", NOBODY, REFUSED), ("0660", NOBODY, 0), ("0660", 1, 77)):
            with testing.Daemon("--listen", path, "--socket-mode", mode):
                os.chown(path, -1, NOBODY)
                done = testing.run(command, user=NOBODY, group=group, extra_groups=[])
                self.assertEqual(done.returncode, code, done.stderr)
                if code == REFUSED:
                    self.assertRegex(done.stderr, f"{path}: Permission denied; .*--socket-mode")

    def test_a_worker_that_the_daemon_ends(self):
        for signals in (1, 2):
            with testing.Daemon("--drain", "0s" if signals == 1 else "30s") as daemon:
                with subprocess.Popen(
                    [testing.BUILD.fargpu, "run", "--", sys.executable, "-c", WAITS],
                    env=testing.clean_environment(FARGPU_SERVER=daemon.server),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                ) as program:
                    self.assertEqual(program.stdout.readline(), "ready\n")
                    daemon.process.terminate()
                    if signals == 2:
                        testing.wait_until(lambda: "draining" in daemon.log_text(), "it drains")
                        daemon.process.terminate()
                    self.assertEqual(daemon.process.wait(timeout=testing.LIMIT), 0)
                    self.assertRegex(
                        program.stderr.readline(),
                        r"is lost: .* \(the server has ended it: .*\); .*; start the program again",
                    )
                lines = [
                    line for line in daemon.log_text().splitlines() if "event=session-end" in line
                ]
                self.assertEqual(len(lines), 1, daemon.log_text())
                self.assertIn(" info ", lines[0])
                self.assertNotIn("gave no reason", lines[0])


if __name__ == "__main__":
    testing.main()
