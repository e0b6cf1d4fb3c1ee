"""Connections before their admission: who is let in, and who has to leave."""

import contextlib
import resource
import select
import socket
import tempfile
import time
import unittest
from pathlib import Path

import fargpu_testing as testing
from fargpu_testing import HELLO, JOIN, STATUS, frame, hello_body


def allow_descriptors(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            raise unittest.SkipTest(f"only {hard} descriptors are allowed, {count} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def connect(daemon, source="127.0.0.1"):
    return socket.create_connection(
        ("127.0.0.1", daemon.port), timeout=20, source_address=(source, 0)
    )


def status_is_answered(daemon, seconds=2):
    """Whether a client at this address gets the daemon's status in time."""
    try:
        with connect(daemon) as client:
            client.settimeout(seconds)
            client.sendall(frame(STATUS, hello_body()))
            return testing.receive_frame(client)[0][7] == 0
    except (OSError, EOFError):
        return False


class Door(unittest.TestCase):
    def setUp(self):
        if testing.tls_certificates():
            self.skipTest("the frames are sent in the clear")

    def test_hellos_of_one_address_at_once(self):
        count = 512
        allow_descriptors(count + 100)
        hello = frame(STATUS, hello_body())
        with testing.Daemon() as daemon, contextlib.ExitStack() as stack:
            begin = time.monotonic()
            clients = [stack.enter_context(connect(daemon)) for _ in range(count)]
            for client in clients:
                client.sendall(hello)
            answered = sum(testing.receive_frame(client)[0][7] == 0 for client in clients)
            self.assertEqual(answered, count)
            self.assertLess(time.monotonic() - begin, 5)

    def test_silent_connections_of_another_address(self):
        count = 10000
        allow_descriptors(count + 100)
        with testing.Daemon("--hello-deadline", "60s") as daemon, contextlib.ExitStack() as stack:
            silent = [stack.enter_context(socket.socket()) for _ in range(count)]
            for one in silent:
                one.bind(("127.0.0.2", 0))
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", daemon.port))
            answers = [status_is_answered(daemon) for _ in range(20)]
            self.assertEqual(sum(answers), 20, answers)
            # They are there: as many as the daemon lets in. On a busy machine some come late, which
            # the system has not taken at once.
            testing.wait_until(lambda: self.open_ones(silent) <= 1024, "the others have left")
            self.assertGreater(self.open_ones(silent), 500)
            self.assertIn("event=connections-evicted", daemon.log.read_text())

    def open_ones(self, connections):
        return sum(not self.has_ended(one) for one in connections)

    def has_ended(self, connection):
        poller = select.poll()
        poller.register(connection, select.POLLIN | select.POLLRDHUP)
        return bool(poller.poll(0))

    def test_a_watch_that_fails_costs_its_connection_alone(self):
        library = testing.BUILD.folder / "tests" / "fault" / "no_watches.so"
        if not library.exists():
            self.skipTest("not with a sanitizer, which must be loaded first")
        with tempfile.TemporaryDirectory() as folder:
            switch = Path(folder) / "no-watches"
            environment = {"LD_PRELOAD": str(library), "NO_WATCHES_WHILE": str(switch)}
            with testing.Daemon("--workers-ahead", "0", environment=environment) as daemon:
                with daemon.connect() as session:
                    session.sendall(frame(HELLO, hello_body()))
                    self.assertEqual(testing.receive_frame(session)[0][7], 0)
                    with daemon.connect() as asked:
                        # Watched already when it asks; its worker cannot be.
                        testing.wait_until(
                            lambda: status_is_answered(daemon), "it has been accepted"
                        )
                        switch.touch()
                        for _ in range(30):
                            with daemon.connect() as refused:
                                self.assertTrue(testing.is_closed(refused))
                        asked.sendall(frame(HELLO, hello_body()))
                        self.assertNotEqual(testing.receive_frame(asked)[0][7], 0)
                    switch.unlink()
                    self.assertTrue(status_is_answered(daemon))
                    session.sendall(frame(testing.PING, sequence=2))
                    self.assertEqual(testing.receive_frame(session)[0][1], testing.PING)
                self.assertEqual(daemon.process.poll(), None)

    def test_wrong_joins_are_told_the_same(self):
        with testing.Daemon() as daemon, daemon.connect() as session:
            session.sendall(frame(HELLO, hello_body(connections=4)))
            welcome = testing.receive_frame(session)[1]
            told = testing.capnp_decode("Welcome", welcome)
            number = int(told.split("sessionId = ")[1].split(",")[0].split(")")[0])
            refusals = set()
            wrong = ((number, 1), (number, 99), (number, 0), (number + 1, 1), (0, 0))
            for session_id, index in wrong:
                with daemon.connect() as joining:
                    text = (
                        f"(protocolVersion = 1, sessionId = {session_id}, index = {index},"
                        f' sessionKey = 0x"{"00" * 16}")'
                    )
                    joining.sendall(frame(JOIN, testing.capnp_encode("Join", text)))
                    header, body, _ = testing.receive_frame(joining)
                    self.assertNotEqual(header[7], 0)
                    refusals.add(body)
            self.assertEqual(len(refusals), 1, refusals)


if __name__ == "__main__":
    testing.main()
