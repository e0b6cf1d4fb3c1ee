"""A daemon behind a port at which its frames are seen and altered."""

import contextlib
import socket
import threading
import unittest

import fargpu_testing as testing


class Proxied(unittest.TestCase):
    """Programs that reach their daemon through a port at which frames are counted or altered."""

    def setUp(self):
        if testing.tls_certificates():
            self.skipTest("the frames are sent in the clear")

    def proxy(self, daemon, opcode, change, sent=None):
        """A port at which `change` alters the daemon's replies to the opcode (None: to calls), as
        bytes, and keeps those back that it returns False for. `sent`: gets what the client
        sends."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def pass_on(source, target):
            try:
                while data := source.recv(65536):
                    if sent is not None:
                        sent.extend(data)
                    target.sendall(data)
            except OSError:
                pass
            end(target)
            source.close()

        def end(connection):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

        def alter(source, target):
            try:
                while True:
                    header, body, bulk = testing.receive_frame(source)
                    body = bytearray(body)
                    altered = header[1] >= 4096 if opcode is None else header[1] == opcode
                    if altered and change(body) is False:
                        continue
                    header = (*header[:5], len(body), *header[6:])
                    target.sendall(testing.HEADER.pack(*header) + bytes(body) + bulk)
            except (EOFError, OSError):
                end(target)
            source.close()

        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                server = daemon.connect()
                threading.Thread(target=pass_on, args=(client, server), daemon=True).start()
                threading.Thread(target=alter, args=(server, client), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]
