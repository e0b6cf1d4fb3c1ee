"""Frames no client of ours would send: each ends its connection at once, with a reason where one can be sent, and the daemon goes on."""

import struct
import unittest

import fargpu_testing as testing
from fargpu_testing import BYE, HELLO, PING, REPLY, STATUS, WANT_REPLY, capnp_decode, frame, hello_body, receive_frame


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
        connection = self.daemon.connect()
        connection.sendall(frame(HELLO, hello_body()))
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

    def test_other_registry(self):
        self.refused(frame(HELLO, hello_body(registryHash=12345)), "version")

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
        self.session_ended(frame(60, sequence=2))
        self.session_ended(frame(65000, sequence=2))

    def test_body_that_is_no_message(self):
        for body in (b"\xff" * 64, struct.pack("<Q", 0x7FFFFFFF00000000) + bytes(56), bytes(8)):
            self.session_ended(frame(64, body + b"\xff" * 8, sequence=2))

    def test_hello_with_garbage(self):
        self.ended(frame(HELLO, b"\xff" * 128))
        self.ended(frame(PING))
        self.ended(frame(BYE))

    def test_second_hello(self):
        self.session_ended(frame(HELLO, hello_body(), sequence=2))

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
