"""Sessions over TCP: calls go on while a copy crosses a slow network."""

import socket
import subprocess
import threading
import unittest

import fargpu_testing as testing

# 24 MiB take 2 s.
LINK = "rtt=1ms,bandwidth=100Mbps"
MEBIBYTES = 24
# A waiting call takes milliseconds on this link. Behind the bytes of the copy, in pieces of 4 MiB,
# it would take a third of a second.
MANY = 50


class Proxy:
    """Passes a port's connections on to another; a connection can be cut."""

    def __init__(self, port):
        self.port_behind = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs = []  # of sockets, in the order of connecting
        self.passed = []  # bytes from the client
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port_behind))
            self.passed.append(0)
            self.pairs.append((client, server))
            number = len(self.pairs) - 1
            for ends in ((client, server, number), (server, client, None)):
                threading.Thread(target=self.copy, args=ends, daemon=True).start()

    def copy(self, source, target, number):
        try:
            while data := source.recv(65536):
                target.sendall(data)
                if number is not None:
                    self.passed[number] += len(data)
        except OSError:
            pass
        self.shut(source, target)

    @staticmethod
    def shut(*sockets):
        for end in sockets:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, number):
        self.shut(*self.pairs[number])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        for pair in self.pairs:
            self.shut(*pair)
            for end in pair:
                end.close()


class BulkConnection(unittest.TestCase):
    def run_program(self, daemon, program, *arguments, link=LINK, **environment):
        done = daemon.run(
            testing.BUILD.program(program),
            *arguments,
            flags=("--transport", "tcp"),
            env=testing.clean_environment(FARGPU_LINK=link, **environment),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def turns(self, daemon, **environment):
        """How often the program waited for other work while its copy was under way."""
        return int(self.run_program(daemon, "calls_beside_copy", MEBIBYTES, **environment))

    def turns_beside_delivery(self, daemon, **environment):
        """The same for small calls beside a copy to the host."""
        return int(
            self.run_program(daemon, "calls_beside_delivery", "calls", MEBIBYTES, **environment)
        )

    def test_calls_go_on(self):
        with testing.Daemon() as daemon:
            self.assertGreater(self.turns(daemon), MANY)
            self.assertGreater(self.turns(daemon, FARGPU_TCP_CONNECTIONS=3), MANY)
            self.assertGreater(self.turns(daemon, FARGPU_SYNC=1), MANY)

    def test_one_connection(self):
        with testing.Daemon() as daemon:
            self.assertLess(self.turns(daemon, FARGPU_TCP_CONNECTIONS=1), MANY)
        with testing.Daemon("--tcp-connections", "1") as daemon:
            self.assertLess(self.turns(daemon), MANY)

    @testing.not_with_an_older_release("it delivers on the connection of the calls")
    def test_calls_go_on_beside_a_delivery(self):
        with testing.Daemon() as daemon:
            self.assertGreater(self.turns_beside_delivery(daemon), MANY)
            self.assertGreater(self.turns_beside_delivery(daemon, FARGPU_TCP_CONNECTIONS=3), MANY)
            self.assertLess(self.turns_beside_delivery(daemon, FARGPU_TCP_CONNECTIONS=1), MANY)

    def test_nobody_knows_of_a_delivery_before_he_has_it(self):
        with testing.Daemon() as daemon:
            for link in ("", "rtt=200us,bandwidth=2Gbps"):
                for connections in (1, 2, 3):
                    for sync in (0, 1):
                        with self.subTest(link=link, connections=connections, sync=sync):
                            self.run_program(
                                daemon,
                                "calls_beside_delivery",
                                "knows",
                                3,
                                link=link,
                                FARGPU_TCP_CONNECTIONS=connections,
                                FARGPU_SYNC=sync,
                            )

    @testing.not_with_an_older_release("it tells of its events before the bytes have come")
    def test_another_process_is_told_when_the_bytes_are_there(self):
        with testing.Daemon() as daemon:
            for link in ("", "rtt=200us,bandwidth=1Gbps"):
                for connections in (1, 2):
                    with self.subTest(link=link, connections=connections):
                        self.run_program(
                            daemon,
                            "told_elsewhere",
                            8,
                            link=link,
                            FARGPU_TCP_CONNECTIONS=connections,
                        )

    def test_the_end_of_either_connection_ends_the_session(self):
        with testing.Daemon() as daemon:
            for which in ("frames", "bulk"):
                with self.subTest(which), Proxy(daemon.port) as proxy:
                    self.cut_under_way(proxy, which)
            self.assertEqual(daemon.run(testing.BUILD.program("vector_add")).returncode, 0)
            testing.wait_until(lambda: not daemon.workers(), "no worker is left")

    def cut_under_way(self, proxy, which):
        program = testing.BUILD.program("calls_beside_copy")
        server = f"127.0.0.1:{proxy.port}"
        process = subprocess.Popen(
            [testing.BUILD.fargpu, "run", "--server", server, "--transport", "tcp", program, "64"],
            env=testing.clean_environment(FARGPU_LINK=LINK),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        testing.wait_until(lambda: max(proxy.passed, default=0) > 8 << 20, "bytes of the copy")
        bulk = proxy.passed.index(max(proxy.passed))
        proxy.cut(bulk if which == "bulk" else bulk - 1)
        output, errors = process.communicate(timeout=30)
        self.assertNotEqual(process.returncode, 0, output)
        self.assertIn("CUDA_ERROR_DEVICE_UNAVAILABLE", errors)
        self.assertEqual("bulk connection has ended" in errors, which == "bulk", errors)


class CopiesInFrames(unittest.TestCase):
    """Bytes of ordinary memory go on the connection of the calls."""

    def test_calls_pass_between_the_pieces(self):
        # 96 MiB take 1 s: 6 pieces of 16 MiB, which are what it begins with, or 96 of 1 MiB.
        with testing.Daemon() as daemon:
            done = daemon.run(
                testing.BUILD.program("calls_beside_frames"),
                96,
                flags=("--transport", "tcp"),
                env=testing.clean_environment(FARGPU_LINK="rtt=1ms,bandwidth=800Mbps"),
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(int(done.stdout), 16)


if __name__ == "__main__":
    testing.main()
