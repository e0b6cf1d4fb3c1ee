"""Which transport a session gets, and that this is told: by `fargpu doctor`, `fargpu ps` and the
logs."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import fargpu_testing as testing


def fargpu(*arguments, **environment):
    return testing.run(
        [testing.BUILD.fargpu, *arguments], env=testing.clean_environment(**environment)
    )


def program():
    return testing.BUILD.folder / "tests" / "fault" / "fault_program"


def may_unshare():
    """Not every container's root may, nor one whose root folder is no mount point."""
    try:
        return testing.run(["unshare", "--net", "--mount", "--ipc", "true"]).returncode == 0
    except OSError:
        return False


class Choice(unittest.TestCase):
    def transport_of(self, server, *flags, **environment):
        done = fargpu("doctor", "--server", server, "--pings", "3", *flags, **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return re.search(r"^ok +transport +(.*)$", done.stdout, re.MULTILINE)[1]

    def test_one_host_gets_shared_memory(self):
        with testing.Daemon() as daemon:
            self.assertRegex(self.transport_of(daemon.server), r"^shm .*both ends are on one host")
            self.assertIn('transport="shm', daemon.log_text())

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "socket"
            with testing.Daemon("--listen", path):
                for server in (path, f"unix:{path}"):
                    self.assertRegex(self.transport_of(server), r"^shm ")
                    self.assertRegex(
                        self.transport_of(server, "--transport", "tcp"),
                        r"^(unix|stream).*asked for",
                    )
                done = fargpu("run", "--server", path, "--", program(), "init")
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_forced(self):
        with testing.Daemon() as daemon:
            self.assertRegex(
                self.transport_of(daemon.server, "--transport", "tcp"), r"^tcp .*asked for"
            )
            self.assertRegex(self.transport_of(daemon.server, FARGPU_TRANSPORT="shm"), r"^shm ")
            self.assertEqual(
                fargpu("doctor", "--server", daemon.server, "--transport", "pigeon").returncode, 2
            )
            done = fargpu(
                "run", "--server", daemon.server, "--", program(), "init", FARGPU_TRANSPORT="pigeon"
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("FARGPU_TRANSPORT: 'pigeon' is no transport", done.stderr)

    def test_server_that_offers_less(self):
        with testing.Daemon("--transports", "none") as daemon:
            self.assertRegex(
                self.transport_of(daemon.server),
                r"^tcp .*shm: switched off in the server's configuration",
            )
            done = fargpu("doctor", "--server", daemon.server, "--transport", "shm")
            self.assertEqual(done.returncode, 2)
            self.assertIn("the wanted transport cannot be had: shm: switched off", done.stdout)
            self.assertIn("--transport auto", done.stdout)
            done = fargpu(
                "run", "--server", daemon.server, "--transport", "shm", "--", program(), "init"
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("the wanted transport cannot be had: shm: switched off", done.stderr)
            self.assertIn("CUDA_ERROR_SYSTEM_NOT_READY", done.stdout)
            self.assertEqual(
                fargpu("run", "--server", daemon.server, "--", program(), "init").returncode, 0
            )

    def test_ps_names_the_transport(self):
        for transport in ("tcp", "shm"):
            with testing.Daemon() as daemon:
                process = daemon.start(
                    program(), flags=("--transport", transport), stdin=subprocess.PIPE
                )
                try:

                    def listed(server=daemon.server, name=transport):
                        text = fargpu("ps", "--server", server).stdout
                        return text if re.search(rf"\b{name}\b", text) else None

                    testing.wait_until(listed, f"fargpu ps shows {transport}")
                finally:
                    process.kill()
                    process.communicate()

    @unittest.skipUnless(may_unshare(), "needs the right to make namespaces")
    def test_container_that_shares_only_the_socket(self):
        # Another network namespace and another /dev/shm: the socket is all that the two ends have
        # in common.
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "socket"
            with testing.Daemon("--listen", path):
                alone = [
                    "unshare",
                    "--net",
                    "--mount",
                    "--ipc",
                    "sh",
                    "-c",
                    'mount -t tmpfs none /dev/shm && exec "$@"',
                    "sh",
                ]
                done = testing.run(
                    [*alone, testing.BUILD.fargpu, "doctor", "--server", path, "--pings", "3"]
                )
                self.assertRegex(done.stdout, r"ok +transport +shm ")
                done = testing.run(
                    [
                        *alone,
                        testing.BUILD.fargpu,
                        "run",
                        "--server",
                        path,
                        "--transport",
                        "shm",
                        "--",
                        program(),
                        "init",
                    ]
                )
                self.assertEqual(done.returncode, 0, done.stderr)


class Connections(unittest.TestCase):
    """A session over TCP may have several."""

    def described(self, daemon, **environment):
        done = fargpu("doctor", "--server", daemon.server, "--pings", "3", **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return re.search(r"^ok +transport +(.*)$", done.stdout, re.MULTILINE)[1]

    def test_settings(self):
        with testing.Daemon() as daemon:
            self.assertRegex(
                self.described(daemon, FARGPU_TRANSPORT="tcp", FARGPU_TCP_CONNECTIONS="4"),
                r"^tcp .* by 4 connections with a bulk connection ",
            )
            near = self.described(daemon, FARGPU_TRANSPORT="tcp")
            self.assertNotIn("connections", near, "loopback is near")
            self.assertIn(" with a bulk connection ", near)
            self.assertNotIn(
                "connection ",
                self.described(daemon, FARGPU_TRANSPORT="tcp", FARGPU_TCP_CONNECTIONS="1"),
            )
            self.assertRegex(self.described(daemon, FARGPU_TCP_CONNECTIONS="4"), r"^shm ")
            done = fargpu(
                "run",
                "--server",
                daemon.server,
                "--",
                program(),
                "init",
                FARGPU_TCP_CONNECTIONS="0",
            )
            self.assertIn("FARGPU_TCP_CONNECTIONS: '0' is neither auto nor a number", done.stderr)

    def test_server_limit(self):
        for limit, text in (
            ("2", r"^tcp [0-9.:]* with a bulk connection"),
            ("4", r" by 2 connections with a bulk connection"),
        ):
            with testing.Daemon("--tcp-connections", limit) as daemon:
                self.assertRegex(
                    self.described(daemon, FARGPU_TRANSPORT="tcp", FARGPU_TCP_CONNECTIONS="4"),
                    text,
                )
        with testing.Daemon("--tcp-connections", "1") as daemon:
            self.assertNotIn(
                "connection ",
                self.described(daemon, FARGPU_TRANSPORT="tcp", FARGPU_TCP_CONNECTIONS="4"),
            )

    def test_large_copies(self):
        with testing.Daemon() as daemon:
            for connections in (2, 7):
                done = daemon.run(
                    testing.BUILD.program("large_copy"),
                    env=testing.clean_environment(
                        FARGPU_TRANSPORT="tcp", FARGPU_TCP_CONNECTIONS=connections
                    ),
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Images(unittest.TestCase):
    """Images of modules are packed where they cross a network, and nowhere else unless told."""

    def sent(self, daemon, size, **environment):
        """How many bytes a program with a PTX image of more than `size` bytes, never seen by the
        daemon, sent for it; and the image's size."""
        ptx = testing.BUILD.program("triple.ptx").read_text()
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            lines = size // 40
            file.write(
                ptx
                + "".join(
                    f"// {os.urandom(4).hex()} padding of the image {i:08}\n" for i in range(lines)
                )
            )
            file.flush()
            done = daemon.run(
                testing.BUILD.program("driver_fatbin"),
                file.name,
                env=testing.clean_environment(FARGPU_LOG="debug", **environment),
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        found = re.findall(r"image [0-9a-f]{64} of (\d+) bytes sent as (\d+)", done.stderr)
        self.assertEqual(len(found), 1, done.stderr)
        return int(found[0][1]), int(found[0][0])

    def test_settings(self):
        with testing.Daemon() as daemon:
            for environment, packed in (
                ({}, False),
                ({"FARGPU_TRANSPORT": "tcp"}, False),
                ({"FARGPU_LINK": "rtt=1us"}, True),
                ({"FARGPU_LINK": "rtt=1us", "FARGPU_COMPRESS": "none"}, False),
                ({"FARGPU_TRANSPORT": "tcp", "FARGPU_COMPRESS": "zstd"}, True),
            ):
                with self.subTest(**environment):
                    sent, size = self.sent(daemon, 100_000, **environment)
                    if packed:
                        self.assertLess(sent, size * 2 // 3)
                    else:
                        self.assertEqual(sent, size)

    def test_image_of_many_pieces(self):
        with testing.Daemon("--max-bulk", "64K") as daemon:
            sent, size = self.sent(
                daemon, 1_000_000, FARGPU_TRANSPORT="tcp", FARGPU_COMPRESS="zstd"
            )
            self.assertLess(sent, size * 2 // 3)


if __name__ == "__main__":
    testing.main()
