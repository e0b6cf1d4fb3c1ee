"""What a launch of a graph without host nodes and host memory costs: one small frame, for which the
caller does not wait."""

import os
import pathlib
import re
import socket
import tempfile
import threading
import unittest

import fargpu_testing as testing

PROGRAM = "counted_launches"
BOUND = 80  # bytes of a launch
COUNT = 100  # few enough for the queue of a stream: no launch waits for room


class Relay:
    """Passes one TCP address on to another, and counts the bytes that go there."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.behind = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.bytes = 0
        self.lock = threading.Lock()
        self.ends = []

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        for end in self.ends:
            end.close()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.behind)
            self.ends += [near, far]
            for ends in ((near, far, True), (far, near, False)):
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source, sink, counted):
        try:
            while piece := source.recv(1 << 16):
                if counted:
                    with self.lock:
                        self.bytes += len(piece)
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # an end is gone


class GraphCalls(unittest.TestCase):
    def run_program(self, count, *arguments, relayed=False):
        """(what the report says of calls, frames that the worker executed, bytes to the server)"""
        with testing.Daemon(gpus=1) as daemon, Relay(daemon.server) as relay:
            server = relay.address if relayed else daemon.server
            flags = ["--server", server, "--report"]
            flags += ["--transport", os.environ["FARGPU_TEST_TRANSPORT"]]
            program = [testing.BUILD.program(PROGRAM), count, *arguments]
            done = testing.run(
                [testing.BUILD.fargpu, "run", *flags, "--", *program],
                env=testing.clean_environment(),
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            ended = testing.wait_until(
                lambda: re.search(r"event=session-end .*\bcalls=(\d+)", daemon.log_text()),
                "the end of the session in the log",
            )
            calls = re.search(r"fargpu:   calls (.*)", done.stderr)[1]
            return [int(each) for each in re.findall(r"\d+", calls)], int(ended[1]), relay.bytes

    def test_a_launch_is_one_frame_and_nobody_waits(self):
        (few, frames_before, _), (many, frames, _) = (self.run_program(n) for n in (0, COUNT))
        more = [b - a for a, b in zip(few, many, strict=True)]
        # All, answered in the client, sent, waited for.
        self.assertEqual(more, [COUNT, 0, COUNT, 0])
        # Perhaps a ping on a slow machine.
        self.assertGreaterEqual(frames - frames_before, COUNT)
        self.assertLess(frames - frames_before, COUNT + 10)

    def test_nobody_waits_for_a_changed_kernel(self):
        (few, frames_before, _), (many, frames, _) = (
            self.run_program(n, "change") for n in (0, COUNT)
        )
        # A change, a launch and the copy that looks at its word.
        more = [b - a for a, b in zip(few, many, strict=True)]
        self.assertEqual(more, [3 * COUNT, 0, 2 * COUNT, COUNT])
        self.assertLess(frames - frames_before, 3 * COUNT + 10)

    def test_a_change_that_the_driver_refuses_after_all(self):
        with tempfile.TemporaryDirectory(prefix="fargpu-driver-") as folder:
            (pathlib.Path(folder) / "refuse").touch()
            with testing.Daemon(
                driver=testing.BUILD.folder / "tests" / "programs" / "slow_driver.so",
                environment={"FARGPU_TEST_DRIVER_FOLDER": folder},
            ) as daemon:
                for sync in (1, 0):
                    done = daemon.run(
                        testing.BUILD.program(PROGRAM),
                        1,
                        "refused",
                        env=testing.clean_environment(FARGPU_SYNC=sync),
                    )
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    told = "event=graph-change-refused" in daemon.log_text()
                    self.assertEqual(told, sync == 0)  # else the call has had the error

    @unittest.skipUnless(os.environ.get("FARGPU_TEST_TRANSPORT") == "tcp", "it counts what passes")
    def test_a_launch_is_small(self):
        few, many = (self.run_program(n, relayed=True)[2] for n in (0, COUNT))
        self.assertLessEqual((many - few) / COUNT, BOUND)


if __name__ == "__main__":
    testing.main()
