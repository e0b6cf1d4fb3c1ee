"""Why a session was lost: its program learns from the server's daemon what became of the worker."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import fargpu_testing as testing

# Calls the driver until that fails, and says when.
CALLS = """
import ctypes, sys, time
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
print("ready", flush=True)
while (result := cuda.cuCtxSynchronize()) == 0:
    time.sleep(0.01)
sys.exit(result - 40)
"""
UNAVAILABLE = 46 - 40
# Makes a context and waits.
IDLE = CALLS.replace("while (", "sys.stdin.read()\nwhile (")


class Forwarder:
    """A port whose connections to the server can be cut."""

    def __init__(self, port):
        self.port, self.pairs = port, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.own_port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            self.pairs.append((client, server))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.pass_on, args=(one, other), daemon=True).start()

    def pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def cut_clients(self):
        for client, _ in tuple(self.pairs):  # not those that come meanwhile
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)


class OtherHost:
    """A network namespace, which stands for a host that can be cut off."""

    SERVER = "10.249.83.1"

    def __init__(self):
        self.name = f"fargpu{os.getpid()}"
        self.link = f"fg{os.getpid()}"

    def __enter__(self):
        if not self.ip("netns", "add", self.name):
            raise unittest.SkipTest("needs the right to make networks")
        steps = (
            ("link", "add", self.link, "type", "veth", "peer", "name", "there", "netns", self.name),
            ("address", "add", f"{self.SERVER}/30", "dev", self.link),
            ("link", "set", self.link, "up"),
            ("-n", self.name, "address", "add", "10.249.83.2/30", "dev", "there"),
            ("-n", self.name, "link", "set", "there", "up"),
        )
        if not all(self.ip(*step) for step in steps):
            self.__exit__()
            raise unittest.SkipTest("needs the right to make networks")
        return self

    def __exit__(self, *_):
        self.ip("link", "del", self.link)
        self.ip("netns", "del", self.name)

    @staticmethod
    def ip(*arguments):
        return testing.run(["ip", *arguments]).returncode == 0

    def go(self):
        """No packet comes from there any more."""
        self.ip("-n", self.name, "link", "set", "there", "down")

    def come_back(self):
        self.ip("-n", self.name, "link", "set", "there", "up")


class Losses(unittest.TestCase):
    def start(self, server, text=CALLS, through=(), **environment):
        command = [*through, testing.BUILD.fargpu, "run", "--", sys.executable, "-c", text]
        program = subprocess.Popen(
            command,
            env=testing.clean_environment(FARGPU_SERVER=server, **environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(program.stdout.readline(), "ready\n")
        return program

    def line_of(self, program, code=UNAVAILABLE):
        """What it printed about its session, without the frame of the sentence."""
        _, errors = program.communicate(timeout=testing.LIMIT)
        self.assertEqual(program.returncode, code, errors)
        lines = [line for line in errors.splitlines() if " is lost: " in line]
        self.assertEqual(len(lines), 1, errors)
        self.assertTrue(lines[0].endswith("; every CUDA call now fails; start the program again"))
        why = lines[0].split(" is lost: ")[1].rsplit("; every CUDA", 1)[0]
        self.assertRegex(why, r"onnection.* \(.*\)$")
        return why.split(" (", 1)[1][:-1]

    def test_a_worker_that_a_signal_ends(self):
        cases = (
            (signal.SIGKILL, "its worker was killed by signal 9 (Killed), as the system does when"),
            (signal.SIGTERM, "its worker was killed by signal 15 (Terminated)"),
            (signal.SIGABRT, "its worker was killed by signal 6 (Aborted)"),
        )
        with testing.Daemon() as daemon:
            for number, why in cases:
                program = self.start(daemon.server)
                for worker in daemon.workers():
                    os.kill(worker, number)
                self.assertTrue(self.line_of(program).startswith(why), why)

    def test_a_worker_that_answers_nothing(self):
        with testing.Daemon("--silent-worker", "1s") as daemon:
            program = self.start(daemon.server)
            for worker in daemon.workers():
                os.kill(worker, signal.SIGSTOP)
            self.assertEqual(
                self.line_of(program),
                "a limit of the server has ended it, silent-worker: "
                "its worker answers nothing for 1 s",
            )

    def test_a_driver_that_does_not_open(self):
        driver = testing.BUILD.folder / "tests" / "programs" / "slow_driver.so"
        with tempfile.TemporaryDirectory() as folder:
            environment = {"FARGPU_TEST_DRIVER_FOLDER": folder}
            flags = ("--worker-start", "2s", "--workers-ahead", "0")
            with testing.Daemon(*flags, environment=environment, driver=driver) as daemon:
                pathlib.Path(folder, "hold").touch()
                done = daemon.run(sys.executable, "-c", CALLS)
                self.assertIn(
                    "a limit of the server has ended it, worker-start: "
                    "its driver is not open after 2 s",
                    done.stderr,
                )

    def test_a_server_that_stops(self):
        for drain, signals, why in (
            ("0s", 1, "the server has ended it: the drain is over"),
            ("30s", 2, "the server has ended it: a second signal ended the daemon at once"),
        ):
            with testing.Daemon("--drain", drain) as daemon:
                program = self.start(daemon.server)
                for _ in range(signals):
                    daemon.process.terminate()
                    testing.wait_until(lambda: "draining" in daemon.log_text(), "it drains")
                self.assertEqual(self.line_of(program), why)
                self.assertEqual(daemon.process.wait(timeout=testing.LIMIT), 0)

    def test_a_daemon_that_is_killed(self):
        with testing.Daemon() as daemon:
            program = self.start(daemon.server)
            daemon.process.kill()
            daemon.process.wait()
            self.assertRegex(self.line_of(program), "^cannot connect to .*")

    @unittest.skipUnless(os.environ.get("FARGPU_TEST_TRANSPORT") == "tcp", "it cuts connections")
    def test_a_connection_that_breaks(self):
        with testing.Daemon("--tcp-connections", "1") as daemon:
            forwarder = Forwarder(daemon.port)
            self.addCleanup(forwarder.listener.close)
            program = self.start(f"127.0.0.1:{forwarder.own_port}")
            workers = daemon.workers()
            for worker in workers:  # its end would come before the question
                os.kill(worker, signal.SIGSTOP)
            forwarder.cut_clients()
            begin = time.monotonic()
            self.assertEqual(self.line_of(program), "the server still has the session")
            self.assertLess(time.monotonic() - begin, testing.LIMIT / 2)
            for worker in workers:
                os.kill(worker, signal.SIGCONT)

    def on_other_host(self, host, daemon, text, scheme="", **environment):
        port = daemon.port_file.read_text().split()[1]
        inside = ("ip", "netns", "exec", host.name)
        program = self.start(f"{scheme}{host.SERVER}:{port}", text, inside, **environment)
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        return program

    @unittest.skipUnless(os.environ.get("FARGPU_TEST_TRANSPORT") == "tcp", "it is about TCP")
    def test_a_host_that_goes_without_a_word(self):
        for text in (CALLS, IDLE):
            with OtherHost() as host:
                flags = ("--listen", f"{host.SERVER}:0", "--lost-client", "2s")
                with testing.Daemon(*flags) as daemon:
                    self.on_other_host(host, daemon, text)
                    host.go()
                    begin = time.monotonic()
                    testing.wait_until(lambda d=daemon: not d.workers(), "the worker has gone")
                    testing.wait_until(
                        lambda d=daemon: "event=job-end" in d.log_text(), "the GPU is free"
                    )
                    self.assertLess(time.monotonic() - begin, 10)
                    self.assertIn("event=client-silent", daemon.log_text())

    @unittest.skipUnless(os.environ.get("FARGPU_TEST_TRANSPORT") == "tcp", "it is about TCP")
    def test_a_host_that_comes_back(self):
        with OtherHost() as host:
            flags = ("--listen", f"{host.SERVER}:0", "--lost-client", "2s")
            with testing.Daemon(*flags) as daemon:
                program = self.on_other_host(host, daemon, CALLS)
                host.go()
                testing.wait_until(lambda: not daemon.workers(), "the worker has gone")
                host.come_back()
                self.assertEqual(
                    self.line_of(program),
                    "a limit of the server has ended it, lost-client: "
                    "the client's host answered nothing for 2 s",
                )

    @unittest.skipUnless(os.environ.get("FARGPU_TEST_TRANSPORT") == "tcp", "it is about TCP")
    def test_a_host_that_goes_behind_tls(self):
        certificates = testing.Certificates(f",IP:{OtherHost.SERVER}")
        key = ("--tls-cert", certificates.file("server.pem"), "--tls-key")
        with OtherHost() as host:
            flags = ("--listen", f"{host.SERVER}:0", "--lost-client", "2s")
            with testing.Daemon(*flags, *key, certificates.file("server.key")) as daemon:
                authority = certificates.file("ca.pem")
                self.on_other_host(host, daemon, IDLE, "tls://", FARGPU_TLS_CA=authority)
                host.go()
                begin = time.monotonic()
                testing.wait_until(lambda: not daemon.workers(), "the worker has gone")
                self.assertLess(time.monotonic() - begin, 10)
                self.assertIn("event=client-silent", daemon.log_text())

    @unittest.skipUnless(os.environ.get("FARGPU_TEST_TRANSPORT") == "tcp", "it is about TCP")
    def test_a_stopped_program_on_a_living_host(self):
        with OtherHost() as host:
            flags = ("--listen", f"{host.SERVER}:0", "--lost-client", "1s")
            with testing.Daemon(*flags) as daemon:
                program = self.on_other_host(host, daemon, CALLS)
                os.kill(program.pid, signal.SIGSTOP)
                time.sleep(5)
                self.assertEqual(len(daemon.workers()), 1, daemon.log_text())
                os.kill(program.pid, signal.SIGCONT)
                self.assertNotIn("event=client-silent", daemon.log_text())


if __name__ == "__main__":
    testing.main()
