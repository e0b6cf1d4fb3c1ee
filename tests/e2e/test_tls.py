"""Encrypted connections, from the command line to the worker: who is trusted, what is refused, and
that nothing goes in the clear."""

import contextlib
import os
import re
import socket
import subprocess
import unittest

import fargpu_testing as testing


def fargpu(*arguments, **environment):
    return testing.run(
        [testing.BUILD.fargpu, *arguments], env=testing.clean_environment(**environment)
    )


def program():
    return testing.BUILD.folder / "tests" / "fault" / "fault_program"


class Wiretap:
    """Passes one port's connections on to another and keeps what went by."""

    def __init__(self, port):
        self.process = subprocess.Popen(
            [
                "python3",
                "-B",
                "-c",
                """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def copy(a, b):
    try:
        while data := a.recv(65536):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            b.sendall(data)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
while True:
    client, _ = listener.accept()
    server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for pair in ((client, server), (server, client)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
""",
                str(port),
            ],
            stdout=subprocess.PIPE,
        )
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def heard(self):
        self.process.kill()
        return self.process.stdout.read()


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certificates = testing.Certificates()

    def daemon(self, *arguments, name="server"):
        return testing.Daemon(
            "--tls-cert",
            self.certificates.file(f"{name}.pem"),
            "--tls-key",
            self.certificates.file(f"{name}.key"),
            *arguments,
        )

    def trusting(self, **more):
        return {"FARGPU_TLS_CA": self.certificates.file("ca.pem"), **more}

    @contextlib.contextmanager
    def session(self, daemon):
        """An encrypted session that has begun; its program is killed in the end."""
        process = subprocess.Popen(
            [
                str(testing.BUILD.fargpu),
                "run",
                "--server",
                f"tls://127.0.0.1:{daemon.port}",
                "--transport",
                "tcp",
                "--",
                str(program()),
            ],
            stdin=subprocess.PIPE,
            env=testing.clean_environment(**self.trusting()),
        )
        try:
            testing.wait_until(
                lambda: daemon.workers() and 'transport="tls' in daemon.log_text(),
                "the session has begun",
            )
            yield
        finally:
            process.kill()
            process.communicate()

    def transport_of(self, *arguments, **environment):
        done = fargpu("doctor", "--pings", "3", *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return re.search(r"^ok +transport +(.*)$", done.stdout, re.MULTILINE)[1]

    def test_flags_and_addresses(self):
        ca = ("--tls-ca", self.certificates.file("ca.pem"))
        with self.daemon() as daemon:
            plain = f"127.0.0.1:{daemon.port}"
            for arguments in (
                ("--server", f"tls://{plain}", *ca),
                ("--server", plain, "--tls", *ca),
                ("--server", f"tls://localhost:{daemon.port}", *ca),
            ):
                with self.subTest(arguments=arguments):
                    self.assertRegex(self.transport_of(*arguments, "--transport", "tcp"), r"^tls ")
                    done = fargpu("run", *arguments, "--transport", "tcp", "--", program(), "init")
                    self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(
                self.transport_of(
                    "--tls", FARGPU_SERVER=plain, FARGPU_TRANSPORT="tcp", **self.trusting()
                ),
                r"^tls ",
            )
            self.assertIn("tls 127.0.0.1:", daemon.log_text())

    def test_shared_memory_after_an_encrypted_hello(self):
        with self.daemon() as daemon:
            self.assertRegex(
                self.transport_of("--server", f"tls://127.0.0.1:{daemon.port}", **self.trusting()),
                r"^shm ",
            )

    def test_rdma_would_go_in_the_clear(self):
        with self.daemon() as daemon:
            done = fargpu(
                "doctor",
                "--server",
                f"tls://127.0.0.1:{daemon.port}",
                "--transport",
                "rdma",
                **self.trusting(),
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("rdma: the session is encrypted, and rdma is not", done.stdout)

    def test_who_is_not_trusted(self):
        with self.daemon() as daemon, self.daemon(name="elsewhere") as elsewhere:
            for server, authority, why in (
                (daemon, "other.pem", "local issuer"),
                (daemon, None, "local issuer"),
                (elsewhere, "ca.pem", "IP address mismatch"),
            ):
                environment = (
                    {"FARGPU_TLS_CA": self.certificates.file(authority)} if authority else {}
                )
                address = f"tls://127.0.0.1:{server.port}"
                for done in (
                    fargpu("run", "--server", address, "--", program(), "init", **environment),
                    fargpu(
                        "run",
                        "--no-check",
                        "--server",
                        address,
                        "--",
                        program(),
                        "init",
                        **environment,
                    ),
                ):
                    self.assertNotEqual(done.returncode, 0)
                    self.assertRegex(
                        done.stderr,
                        f"{address}: the server's certificate is not to be trusted: .*{why}",
                    )
            testing.wait_until(
                lambda: "event=tls-failed" in daemon.log_text(), "the daemon tells of the handshake"
            )

    def test_no_plaintext_to_a_server_with_tls(self):
        with self.daemon() as daemon:
            done = fargpu("run", "--server", f"127.0.0.1:{daemon.port}", "--", program(), "init")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("this server takes encrypted connections only: use --tls", done.stderr)
            self.assertIn("this server takes encrypted connections only", daemon.log_text())
            for data in (
                b"GET / HTTP/1.1\r\n\r\n" + bytes(40),
                testing.frame(testing.STATUS, testing.hello_body()),
                b"\x16",
            ):
                with daemon.connect() as connection:
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                    self.assertTrue(testing.is_closed(connection))
            self.assertRegex(
                self.transport_of("--server", f"tls://127.0.0.1:{daemon.port}", **self.trusting()),
                r"^shm ",
            )

    def test_no_fallback_to_plaintext(self):
        with testing.Daemon() as daemon:
            done = fargpu(
                "run",
                "--server",
                f"tls://127.0.0.1:{daemon.port}",
                "--",
                program(),
                "init",
                **self.trusting(),
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("the server does not speak TLS", done.stderr)

    def test_token_and_data_are_not_to_be_seen(self):
        token = self.certificates.folder / "token"
        token.write_text("very-secret-token-17\n")
        token.chmod(0o600)
        for encrypted in (True, False):
            with (
                self.daemon("--token-file", token)
                if encrypted
                else testing.Daemon("--token-file", token)
            ) as daemon:
                with Wiretap(daemon.port) as tap:
                    done = fargpu(
                        "run",
                        "--server",
                        f"{'tls://' if encrypted else ''}127.0.0.1:{tap.port}",
                        "--token-file",
                        token,
                        "--transport",
                        "tcp",
                        "--",
                        program(),
                        "init",
                        **(self.trusting() if encrypted else {}),
                    )
                    self.assertEqual(done.returncode, 0, done.stderr)
                    heard = tap.heard()
                self.assertGreater(len(heard), 500)
                self.assertEqual(b"very-secret-token-17" in heard, not encrypted)

    def test_unix_sockets_need_none(self):
        path = self.certificates.folder / "socket"
        with self.daemon("--listen", path):
            self.assertEqual(fargpu("run", "--server", path, "--", program(), "init").returncode, 0)
            done = fargpu("run", "--tls", "--server", path, "--", program(), "init")
            self.assertEqual(done.returncode, 2)
            self.assertIn("TLS is for HOST:PORT", done.stderr)

    def test_wrong_files(self):
        for arguments, why in (
            (("--tls-cert", self.certificates.file("server.pem")), "belong together"),
            (
                ("--tls-cert", "/nonexistent", "--tls-key", self.certificates.file("server.key")),
                "/nonexistent",
            ),
            (
                (
                    "--tls-cert",
                    self.certificates.file("server.pem"),
                    "--tls-key",
                    self.certificates.file("other.key"),
                ),
                "key values mismatch",
            ),
        ):
            done = testing.run(
                [testing.BUILD.fargpud, "--driver", "sim", "--listen", "127.0.0.1:0", *arguments]
            )
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)
        done = fargpu("doctor", "--server", "tls://localhost:1", "--tls-ca", "/nonexistent")
        self.assertIn("--tls-ca: cannot read '/nonexistent'", done.stderr)

    def test_silence_in_the_handshake(self):
        with self.daemon("--hello-deadline", "1s", "--max-handshakes", "4") as daemon:
            connections = [daemon.connect() for _ in range(4)]
            for connection in connections:
                connection.sendall(bytes((22, 3, 1, 2, 0, 1, 0, 1, 0xFC)))
            for connection in connections:
                self.assertTrue(testing.is_closed(connection))
                connection.close()
            self.assertRegex(
                self.transport_of("--server", f"tls://127.0.0.1:{daemon.port}", **self.trusting()),
                r"^shm ",
            )
            testing.wait_until(lambda: not daemon.children("fargpu-tls-rela"), "no relay is left")

    def test_relay_and_worker_end_with_the_client(self):
        with self.daemon() as daemon:
            with self.session(daemon):
                self.assertTrue(daemon.children("fargpu-tls-rela"))
            testing.wait_until(
                lambda: not daemon.workers() and not daemon.children("fargpu-tls-rela"),
                "both are gone",
                seconds=10,
            )

    def test_relay_that_is_killed_ends_its_session_only(self):
        with self.daemon() as daemon:
            with self.session(daemon):
                for pid in daemon.children("fargpu-tls-rela"):
                    os.kill(pid, 9)
                testing.wait_until(lambda: not daemon.workers(), "the worker is gone", seconds=10)
                self.assertRegex(
                    self.transport_of(
                        "--server", f"tls://127.0.0.1:{daemon.port}", **self.trusting()
                    ),
                    r"^shm ",
                )


if __name__ == "__main__":
    testing.main()
