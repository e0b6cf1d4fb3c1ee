"""Frames no client of ours would send: each ends its connection at once, with a reason where one
can be sent, and the daemon goes on."""

import re
import struct
import time
import unittest

import fargpu_testing as testing
from fargpu_testing import (
    BYE,
    HELLO,
    JOIN,
    PING,
    REPLY,
    STATUS,
    UPGRADE,
    capnp_decode,
    capnp_encode,
    data_field,
    frame,
    hello_body,
    receive_frame,
)

CU_MEM_ALLOC = 308  # schema/api/registry.yml; a number never changes


class Frames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = testing.Daemon("--hello-deadline", "2s").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None)

    def tearDown(self):
        """Whatever happened, the daemon serves the next session."""
        with self.session() as connection:
            connection.sendall(frame(PING, sequence=2))
            header, _, _ = receive_frame(connection)
            self.assertEqual((header[1], header[4], header[7]), (PING, 2, 0))

    def session(self):
        """A connection whose hello was welcomed."""
        hello = hello_body()  # takes its time on a busy machine, and the daemon has a deadline
        connection = self.daemon.connect()
        connection.sendall(frame(HELLO, hello))
        header, body, _ = receive_frame(connection)
        self.assertEqual((header[1], header[2] & REPLY, header[7]), (HELLO, REPLY, 0), body)
        self.assertIn("devices", capnp_decode("Welcome", body))
        return connection

    def refused(self, hello, reason):
        with self.daemon.connect() as connection:
            connection.sendall(hello)
            header, body, _ = receive_frame(connection)
            self.assertNotEqual(header[7], 0)
            text = capnp_decode("Refusal", body)
            self.assertIn(f"reason = {reason}", text)
            self.assertRegex(text, r'message = "[^"]{10,}"')
            self.assertTrue(testing.is_closed(connection))

    def ended(self, first_bytes, shut=False):
        """Sent instead of a hello: the daemon closes (an answer before that is allowed)."""
        with self.daemon.connect() as connection:
            connection.sendall(first_bytes)
            if shut:
                connection.shutdown(1)
            self.assertTrue(testing.is_closed(connection))

    def session_ended(self, data):
        """Sent inside a session: that session is over."""
        with self.session() as connection:
            connection.sendall(data)
            self.assertTrue(testing.is_closed(connection))

    def test_wrong_version(self):
        self.refused(frame(HELLO, hello_body(version=99)), "version")

    def test_client_that_says_not_what_it_knows(self):
        self.refused(frame(HELLO, hello_body(registryHash=12345, knows='""')), "version")
        self.refused(frame(HELLO, hello_body(knows='0x"' + "00" * 100 + '"')), "version")

    def test_first_frame_of_a_newer_client(self):
        self.refused(frame(62, hello_body()), "version")

    def test_too_many_gpus(self):
        self.refused(frame(HELLO, hello_body(gpus=9)), "badRequest")

    def test_unknown_device(self):
        self.refused(frame(HELLO, hello_body(devices='["GPU-does-not-exist"]')), "badRequest")

    def test_wrong_magic(self):
        self.ended(frame(HELLO, hello_body(), magic=0x1234))
        self.session_ended(frame(PING, magic=0x1234, sequence=2))

    def test_not_our_protocol(self):
        self.ended(b"GET / HTTP/1.1\r\nHost: gpu\r\n\r\n")
        self.ended(bytes(range(256)))

    def test_half_a_header(self):
        self.ended(frame(HELLO, hello_body())[:17], shut=True)

    def test_half_a_body(self):
        self.ended(frame(HELLO, hello_body())[:-9], shut=True)

    def test_silence(self):
        self.ended(b"")  # the hello's deadline
        self.ended(frame(HELLO, hello_body())[:40])

    def test_half_a_frame_in_a_session(self):
        with self.session() as connection:
            connection.sendall(frame(PING, sequence=2)[:20])
            connection.shutdown(1)
            self.assertTrue(testing.is_closed(connection))

    def test_oversized_lengths(self):
        self.ended(frame(HELLO, body_bytes=0xFFFFFFF8))
        self.ended(frame(HELLO, hello_body(), bulk_bytes=1 << 62))
        self.session_ended(frame(PING, sequence=2, body_bytes=0xFFFFFFF8))
        self.session_ended(frame(PING, sequence=2, bulk_bytes=1 << 63))
        self.session_ended(frame(100, sequence=2, body_bytes=(1 << 20) + 8))

    def test_length_that_is_no_multiple_of_eight(self):
        self.session_ended(frame(PING, b"abc", sequence=2))

    def test_reserved_bits(self):
        self.session_ended(frame(PING, sequence=2, reserved=1))
        self.session_ended(frame(PING, sequence=2, flags=0x8000))

    def test_unknown_opcode(self):
        for opcode in (60, 65000):
            with self.session() as connection:
                connection.sendall(frame(opcode, bytes(64), bytes(1000), sequence=2))
                header, _, _ = receive_frame(connection)
                self.assertEqual((header[1], header[4]), (opcode, 2))
                self.assertEqual(header[7], 801, "CUDA_ERROR_NOT_SUPPORTED")
                self.ping(connection, 3)

    def test_body_that_is_no_message(self):
        for body in (b"\xff" * 64, struct.pack("<Q", 0x7FFFFFFF00000000) + bytes(56)):
            self.session_ended(frame(CU_MEM_ALLOC, body + b"\xff" * 8, sequence=2))

    def test_hello_with_garbage(self):
        self.ended(frame(HELLO, b"\xff" * 128))
        self.ended(frame(PING))
        self.ended(frame(BYE))

    def test_second_hello(self):
        self.session_ended(frame(HELLO, hello_body(), sequence=2))

    def session_with_key(self, connections):
        """A session that may have several connections, its id and its key."""
        connection = self.daemon.connect()
        self.addCleanup(connection.close)
        connection.sendall(frame(HELLO, hello_body(connections=connections)))
        header, body, _ = receive_frame(connection)
        self.assertEqual((header[1], header[7]), (HELLO, 0))
        welcome = capnp_decode("Welcome", body)
        self.assertEqual(re.search(r"\bconnections = (\d+)", welcome)[1], str(connections))
        key = data_field(welcome, "sessionKey")
        self.assertEqual(len(key), 16)
        return connection, int(re.search(r"sessionId = (\d+)", welcome)[1]), key

    def join(self, session, key, index, version=1):
        """A further connection and whether the daemon took it."""
        connection = self.daemon.connect()
        self.addCleanup(connection.close)
        data = f'0x"{key.hex()}"' if key else '""'
        body = capnp_encode(
            "Join",
            f"(protocolVersion = {version}, sessionId = {session}, "
            f"sessionKey = {data}, index = {index})",
        )
        connection.sendall(frame(JOIN, body))
        header, body, _ = receive_frame(connection)
        self.assertEqual((header[1], header[2] & REPLY), (JOIN, REPLY))
        if header[7] != 0:
            self.assertIn("message", capnp_decode("Refusal", body))
        return connection, header[7] == 0

    def stay(self, connection, connections):
        connection.sendall(
            frame(
                UPGRADE,
                capnp_encode("Upgrade", f"(step = stay, connections = {connections})"),
                sequence=2,
            )
        )

    def ping(self, connection, sequence):
        connection.sendall(frame(PING, sequence=sequence))
        header, _, _ = receive_frame(connection)
        self.assertEqual((header[1], header[4], header[7]), (PING, sequence, 0))

    def test_nobody_joins_a_session_without_its_key(self):
        first, session, key = self.session_with_key(3)
        wrong = bytes([key[0] ^ 1]) + key[1:]
        other, other_session, other_key = self.session_with_key(3)
        for attempt in (
            (session, wrong, 1),
            (session, key[:15], 1),
            (session, b"", 1),
            (session, other_key, 1),
            (session + 1000, key, 1),
            (session, key, 0),
            (session, key, 3),
            (session, key, 65535),
            (session, key, 1, 99),
        ):
            with self.subTest(attempt=attempt):
                connection, taken = self.join(*attempt)
                self.assertFalse(taken)
                self.assertTrue(testing.is_closed(connection))
        second, taken = self.join(session, key, 1)
        self.assertTrue(taken)
        self.assertFalse(self.join(session, key, 1)[1], "an index is given once")
        self.stay(first, 2)
        self.assertEqual(receive_frame(first)[0][7], 0)
        self.ping(first, 3)
        self.assertFalse(self.join(session, key, 2)[1], "the transport is chosen: too late")
        self.stay(other, 1)
        self.assertEqual(receive_frame(other)[0][7], 0)
        self.ping(other, 3)
        second.close()

    def test_key_dies_with_its_session(self):
        first, session, key = self.session_with_key(2)
        first.close()
        testing.wait_until(lambda: not self.join(session, key, 1)[1], "the key is forgotten")

    def test_end_of_a_further_connection_ends_the_session(self):
        first, session, key = self.session_with_key(2)
        second, taken = self.join(session, key, 1)
        self.assertTrue(taken)
        self.stay(first, 2)
        self.assertEqual(receive_frame(first)[0][7], 0)
        self.ping(first, 3)
        begin = time.monotonic()
        second.close()
        self.assertTrue(testing.is_closed(first))
        self.assertLess(time.monotonic() - begin, 5)

    def test_more_connections_than_there_are(self):
        for connections in (2, 4):
            first, _, _ = self.session_with_key(3)
            self.stay(first, connections)
            self.assertTrue(testing.is_closed(first))

    def test_join_with_garbage(self):
        self.ended(frame(JOIN, b"\xff" * 64))
        self.ended(frame(JOIN))

    def test_status_question(self):
        with self.daemon.connect() as connection:
            connection.sendall(frame(STATUS, hello_body()))
            header, body, _ = receive_frame(connection)
            self.assertEqual(header[7], 0)
            self.assertIn("serverVersion", capnp_decode("Status", body))
            self.assertTrue(testing.is_closed(connection))

    def test_bye_ends_the_session(self):
        with self.session() as connection:
            connection.sendall(frame(BYE, flags=0, sequence=2))
            self.assertTrue(testing.is_closed(connection))

    def test_flood_of_connections(self):
        connections = [self.daemon.connect() for _ in range(100)]
        for connection in connections:
            connection.close()


if __name__ == "__main__":
    testing.main()
