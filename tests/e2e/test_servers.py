"""One program on the GPUs of two servers: devices of both, identities, addresses, jobs."""

import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import fargpu_testing as testing


def fargpu(*arguments, **environment):
    return testing.run(
        [testing.BUILD.fargpu, *arguments], env=testing.clean_environment(**environment)
    )


class TwoServers(unittest.TestCase):
    """Two daemons, each with two GPUs in a slot of its own."""

    PROGRAM = "two_servers"
    GPUS = 2
    FLAGS = ((), ())

    def setUp(self):
        self.a = testing.Daemon(*self.FLAGS[0], gpus=self.GPUS).__enter__()
        self.addCleanup(self.leave, self.a)
        self.b = testing.Daemon(*self.FLAGS[1], gpus=self.GPUS).__enter__()
        self.addCleanup(self.leave, self.b)
        self.servers = f"{self.a.server},{self.b.server}"

    def leave(self, daemon):
        failed = any(error for _, error in getattr(self._outcome, "errors", []) or [])
        daemon.__exit__(AssertionError if failed else None, None, None)

    def run_program(self, *arguments, flags=(), **options):
        program = testing.BUILD.program(self.PROGRAM)
        return testing.run(
            [testing.BUILD.fargpu, "run", "--server", self.servers, *flags, "--", program]
            + list(arguments),
            **options,
        )

    def right(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout


class Devices(TwoServers):
    def test_devices_of_the_first_then_of_the_second(self):
        lines = self.right(self.run_program("devices", flags=("--gpus", "2"))).splitlines()
        devices = [line.split() for line in lines]
        self.assertEqual([device[0] for device in devices], ["0", "1", "2", "3"])
        self.assertEqual(len({device[1] for device in devices}), 4, "UUIDs")
        self.assertEqual(len({device[2] for device in devices}), 4, "PCI bus ids")
        self.assertEqual([device[3] for device in devices], ["0", "0", "1", "1"], "PCI domains")
        again = self.run_program("devices", flags=("--gpus", "2"))
        self.assertEqual(self.right(again).splitlines(), lines, "the same in every process")

    def test_visible_devices_choose_among_all(self):
        lines = self.right(self.run_program("devices", flags=("--gpus", "2"))).splitlines()
        uuids = [line.split()[1] for line in lines]
        environment = testing.clean_environment(CUDA_VISIBLE_DEVICES="3,0,2")
        chosen = self.run_program("devices", flags=("--gpus", "2"), env=environment)
        seen = [line.split()[1] for line in self.right(chosen).splitlines()]
        self.assertEqual(seen, [uuids[3], uuids[0], uuids[2]])

    def test_each_works_by_itself(self):
        self.assertIn("two_servers: right", self.right(self.run_program("each")))

    def test_each_works_whatever_the_order_of_devices(self):
        environment = testing.clean_environment(CUDA_VISIBLE_DEVICES="1,0")
        self.assertIn("right", self.right(self.run_program("each", env=environment)))

    def test_without_a_check_the_program_makes_its_jobs(self):
        self.assertIn("right", self.right(self.run_program("each", flags=("--no-check",))))

    def test_commands_show_each_server(self):
        for command in (["devices"], ["ps"], ["doctor", "--pings", "3"]):
            shown = self.right(fargpu(*command, "--server", self.servers))
            for daemon in (self.a, self.b):
                self.assertIn(f"server {daemon.server}\n", shown)
        one = self.right(fargpu("devices", "--server", self.a.server))
        self.assertNotIn("server", one)

    def test_a_run_is_one_job_at_each_server(self):
        with self.started() as process:
            for daemon in (self.a, self.b):
                listing = self.right(fargpu("ps", "--server", daemon.server))
                self.assertIn("1 jobs", listing)
                self.assertIn("held", listing)
            process.communicate("\n")
        for daemon in (self.a, self.b):
            testing.wait_until(
                lambda d=daemon: "0 jobs" in fargpu("ps", "--server", d.server).stdout,
                "the job ends",
            )

    def started(self):
        process = subprocess.Popen(
            [str(testing.BUILD.fargpu), "run", "--server", self.servers, "--", "sh", "-c"]
            + ["echo started; read line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=testing.clean_environment(),
        )
        self.assertEqual(process.stdout.readline(), "started\n")
        return process

    def test_a_server_that_is_missing_is_named(self):
        self.b.stop()
        done = self.run_program("each")
        self.assertEqual(done.returncode, 69, done.stderr)
        self.assertIn(self.b.server.removeprefix("tls://"), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        done = self.run_program("devices", flags=("--no-check",))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"server {self.b.server}", done.stderr)
        testing.wait_until(
            lambda: not self.a.workers(), "the other server's session and job are given up"
        )

    def test_lists_that_make_no_sense(self):
        for servers, expected in (
            (f"{self.a.server},", "a server is missing beside a comma"),
            (f"{self.a.server},{self.a.server}", "is named twice"),
            (",".join(f"gpu{i}" for i in range(17)), "a program may have 16"),
        ):
            done = fargpu("run", "--server", servers, "--", "true")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(expected, done.stderr)


class Tokens(unittest.TestCase):
    """Each server is sent the token that was meant for it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def run_true(self, servers, **environment):
        return fargpu("run", "--server", ",".join(servers), "--", "true", **environment)

    def test_two_servers(self):
        one = testing.Daemon("--token-file", self.file("one", "secret-one\n"))
        two = testing.Daemon("--token-file", self.file("two", "secret-two\n"))
        with one as a, two as b:
            lines = f"server {a.server} secret-one\nserver {b.server} secret-two\n"
            program = [testing.BUILD.program("two_servers"), "each"]
            servers = ["--server", f"{a.server},{b.server}"]
            for check in ((), ("--no-check",)):
                done = fargpu(
                    *("run", *servers, "--token-file", self.file("mine", lines)),
                    *(*check, "--", *program),
                )
                self.assertEqual(done.returncode, 0, done.stderr)
            crossed = f"server {b.server} secret-one\nserver {a.server} secret-two\n"
            done = self.run_true([a.server, b.server], FARGPU_TOKEN=crossed)
            self.assertEqual(done.returncode, 77, done.stderr)
            shown = fargpu("doctor", *servers, FARGPU_TOKEN=lines)
            self.assertEqual(shown.returncode, 0, shown.stderr)

    def test_one_token_is_for_all_only_if_that_is_said(self):
        with testing.Daemon("--token-file", self.file("one", "secret-one\n")) as a:
            heard = []
            with socket.create_server(("127.0.0.1", 0)) as listener:

                def listen():
                    while True:
                        try:
                            peer, _ = listener.accept()
                        except OSError:
                            return
                        with peer:
                            peer.settimeout(2)
                            heard.append(peer.recv(1 << 16))

                threading.Thread(target=listen, daemon=True).start()
                servers = [a.server, f"127.0.0.1:{listener.getsockname()[1]}"]
                done = self.run_true(servers, FARGPU_TOKEN="secret-one")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("server * TOKEN", done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertEqual(heard, [])
                done = self.run_true(servers, FARGPU_TOKEN=f"server {a.server} secret-one")
                self.assertEqual(done.returncode, 69, done.stderr)
                self.assertTrue(heard, "it was asked, without a token")
                self.assertFalse(any(b"secret-one" in data for data in heard))
                heard.clear()
                self.run_true(servers, FARGPU_TOKEN="server * secret-one")
                self.assertTrue(any(b"secret-one" in data for data in heard), "as was said")
                listener.shutdown(socket.SHUT_RDWR)

    def test_a_server_without_a_line_is_named(self):
        with testing.Daemon("--token-file", self.file("one", "secret-one\n")) as a:
            lines = "server gpu2:1 secret-two"
            why = f"no line of FARGPU_TOKEN or FARGPU_TOKEN_FILE is for server {a.server}"
            program = [testing.BUILD.program("two_servers"), "each"]
            for done in (
                self.run_true([a.server], FARGPU_TOKEN=lines),
                fargpu("devices", "--server", a.server, FARGPU_TOKEN=lines),
                fargpu(
                    *("run", "--server", a.server, "--no-check", "--", *program),
                    FARGPU_TOKEN=lines,
                ),
            ):
                self.assertIn(why, done.stderr)
            for text in (f"# {lines}", lines.capitalize(), f"\ufeff{lines}"):
                done = self.run_true([a.server], FARGPU_TOKEN=text)
                self.assertEqual(done.returncode, 2, done.stderr)


class OneServerNamedTwice(unittest.TestCase):
    """A daemon has as many names as there are ways to it."""

    def test_it_is_refused_whatever_the_names(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "socket"
            with testing.Daemon("--listen", path) as daemon:
                other = daemon.server.replace("127.0.0.1", "localhost")
                for servers in ((daemon.server, other), (path, daemon.server)):
                    self.refused(daemon, ",".join(map(str, servers)))

    def refused(self, daemon, servers):
        program = testing.BUILD.program("two_servers")
        for flags, code in (((), 2), (("--no-check",), 1)):
            done = fargpu("run", "--server", servers, *flags, "--", program, "devices")
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn("are one server, named twice", done.stderr)
            for name in servers.split(","):
                self.assertIn(name, done.stderr)
            testing.wait_until(lambda: not daemon.workers(), "sessions are given up")


class Between(TwoServers):
    """What goes from one server to the other."""

    GPUS = 1

    def test_copies(self):
        self.assertIn("two_servers: right", self.right(self.run_program("copies")))

    def test_events(self):
        self.assertIn("two_servers: right", self.right(self.run_program("events")))

    def test_an_event_that_is_recorded_again(self):
        self.assertIn("two_servers: right", self.right(self.run_program("again")))

    def test_pinned_memory(self):
        self.assertIn("two_servers: right", self.right(self.run_program("pinned")))

    def test_every_call_waiting_gives_the_same(self):
        environment = testing.clean_environment(FARGPU_SYNC="1")
        for part in ("copies", "events", "pinned"):
            self.assertIn("right", self.right(self.run_program(part, env=environment)))

    def test_one_server_with_two_gpus_gives_the_same(self):
        with testing.Daemon(gpus=2) as daemon:
            for part in ("copies", "events", "pinned"):
                done = daemon.run(testing.BUILD.program("two_servers"), part, flags=("--gpus", "2"))
                self.assertIn("two_servers: right", self.right(done))

    def test_one_server_is_lost(self):
        process = subprocess.Popen(
            [str(testing.BUILD.fargpu), "run", "--server", self.servers, "--"]
            + [str(testing.BUILD.program("two_servers")), "lose"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=testing.clean_environment(),
        )
        self.assertEqual(process.stdout.readline(), "ready\n")
        for worker in self.b.workers():
            os.kill(worker, signal.SIGKILL)
        output, errors = process.communicate("\n", timeout=testing.LIMIT)
        self.assertEqual(process.returncode, 0, output + errors)
        self.assertIn("two_servers: right", output)
        self.assertIn(f"the session with {self.b.server} is lost", errors)
        self.assertIn("calls for its GPUs now fail", errors)


class ByTheDriver(TwoServers):
    """Copies of the driver API, of which both ends may be at the server that is not current."""

    PROGRAM = "servers_by_driver"
    GPUS = 1
    RIGHT = "servers_by_driver: right\n"

    def test_copies(self):
        self.assertEqual(self.right(self.run_program()), self.RIGHT)

    def test_one_server_with_two_gpus_gives_the_same(self):
        with testing.Daemon(gpus=2) as daemon:
            done = daemon.run(testing.BUILD.program(self.PROGRAM), flags=("--gpus", "2"))
            self.assertEqual(self.right(done), self.RIGHT)


class Order(TwoServers):
    """Default streams, and what ends while work between the servers is under way."""

    PROGRAM = "server_order"
    RIGHT = "server_order: right\n"

    def test_default_streams_are_those_of_the_current_device(self):
        self.assertEqual(self.right(self.run_program("default")), self.RIGHT)

    def test_a_third_device_is_current(self):
        third = self.run_program("third", flags=("--gpus", "2"))
        self.assertEqual(self.right(third), self.RIGHT)

    def test_memory_is_freed_behind_copies(self):
        self.assertEqual(self.right(self.run_program("freed")), self.RIGHT)

    def test_a_device_is_reset_behind_copies(self):
        self.assertEqual(self.right(self.run_program("reset")), self.RIGHT)

    def test_one_server_with_two_gpus_gives_the_same(self):
        # Only the order of streams. Freeing memory, or resetting a device, behind copies in a
        # stream of another device is a promise of fargpu between servers. CUDA makes none, and a
        # simulated device does not look at the streams of another one.
        with testing.Daemon(gpus=2) as daemon:
            program = testing.BUILD.program(self.PROGRAM)
            done = daemon.run(program, "default", flags=("--gpus", "2"))
            self.assertEqual(self.right(done), self.RIGHT)


@unittest.skipUnless(testing.SIMULATOR_CHOOSES_ADDRESSES, "sanitizers take these addresses")
class SameAddresses(TwoServers):
    """Both daemons give out the same addresses."""

    GPUS = 1
    FLAGS = (("--sim-slot", "3"), ("--sim-slot", "3"))

    def test_the_second_server_allocates_beyond_the_first(self):
        done = self.run_program("collide", "4")
        self.assertEqual(self.right(done), "cudaSuccess\n")

    def test_too_many_collisions_are_refused_by_name(self):
        done = self.run_program("collide", "20")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "cudaErrorMemoryAllocation\n")
        self.assertIn("cuMemAlloc: server " + self.b.server, done.stderr)
        self.assertIn("server " + self.a.server + " has given out, too", done.stderr)


if __name__ == "__main__":
    testing.main()
