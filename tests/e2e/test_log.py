"""The daemon's log is its own: what strangers and clients cause in it is bounded, and who reads it
too slowly stops nobody."""

import os
import pathlib
import socket
import tempfile
import unittest

import fargpu_testing as testing

# A module that does not load, with a name that is long and one that looks like a line of the log.
LOADS = r"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context, module = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
image = (".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n call "
         + "n" * 20000 + ";\n}\n").encode()
for _ in range(int(sys.argv[1])):
    assert cuda.cuModuleLoadData(ctypes.byref(module), image) != 0
"""


def say_nonsense(port, connections):
    """Connections that are no hello."""
    for _ in range(connections):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
                stranger.sendall(b"G" * 32)
        except OSError:
            pass


class Log(unittest.TestCase):
    def test_strangers_are_counted(self):
        with testing.Daemon() as daemon:
            if daemon.certificates:
                self.skipTest("a stranger costs a process there")
            say_nonsense(daemon.port, 1500)
            testing.wait_until(lambda: "lines-left-out" in daemon.log_text(), "a line that counts")
            lines = daemon.log_text().splitlines()
            about = [line for line in lines if "peer=127.0.0.1" in line]
            self.assertGreaterEqual(len(about), 50)
            self.assertLess(len(about), 500)

    def test_failed_loads_are_counted(self):
        with testing.Daemon() as daemon:
            before = len(daemon.log_text())
            done = daemon.run("python3", "-c", LOADS, "3000")
            self.assertEqual(done.returncode, 0, done.stderr)
            testing.wait_until(lambda: "session-end" in daemon.log_text(), "the session ends")
            text = daemon.log_text()
            self.assertIn("module does not load", text)
            self.assertRegex(text, r"worker \S+ job \S+: event=lines-left-out lines=\d+")
            self.assertLess(len(text) - before, 1 << 20)
            self.assertLess(max(map(len, text.splitlines())), 1200)
            # What the worker said comes before its end.
            self.assertGreater(text.index("event=session-end"), text.index("lines-left-out"))

    def test_a_log_file_is_written_by_the_daemon_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "log"
            with testing.Daemon(environment={"FARGPU_LOG_FILE": path}) as daemon:
                done = daemon.run("python3", "-c", LOADS, "1")
                self.assertEqual(done.returncode, 0, done.stderr)
                testing.wait_until(lambda: "session-end" in path.read_text(), "the session ends")
                self.assertRegex(path.read_text(), r"worker \S+ job \S+: module does not load")
                holders = [
                    pid
                    for pid in daemon.workers() + daemon.workers_ahead()
                    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()
                    if os.readlink(link) == str(path)
                ]
                self.assertEqual(holders, [])

    def test_a_reader_that_stops_stops_nobody(self):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        pipe = f"/proc/{os.getpid()}/fd/{writing}"
        with testing.Daemon(environment={"FARGPU_LOG_FILE": pipe}) as daemon:
            os.close(writing)
            # More lines than the pipe takes, of three sessions.
            for _ in range(3):
                done = daemon.run("python3", "-c", LOADS, "400")
                self.assertEqual(done.returncode, 0, done.stderr)
            say_nonsense(daemon.port, 10)
            self.assertEqual(daemon.run("python3", "-c", LOADS, "1").returncode, 0)


if __name__ == "__main__":
    testing.main()
