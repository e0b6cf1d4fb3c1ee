"""Bad input of people: configuration, tokens, drivers, limits, unsupported functions. One clear
line, a distinct code, and the daemon goes on."""

import os
import pathlib
import tempfile
import unittest

import fargpu_testing as testing


def fargpud(*arguments, **environment):
    return testing.run(
        [testing.BUILD.fargpud, *arguments],
        env=testing.clean_environment(**environment),
        timeout=60,
    )


def program():
    return testing.BUILD.folder / "tests" / "fault" / "fault_program"


class Limits(unittest.TestCase):
    def one_clear_line(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("fargpud:")]
        self.assertEqual(len(lines), 1, done.stderr)
        for word in words:
            self.assertIn(word, lines[0])

    def test_unreadable_configuration(self):
        self.one_clear_line(fargpud("--config", "/no/such/file.toml"), 2, "/no/such/file.toml")

    def test_wrong_configuration(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "fargpud.toml"
            for text in ("this is no toml [", "no_such_key = 1\n", "listen = 5\n"):
                path.write_text(text)
                with self.subTest(text):
                    self.one_clear_line(fargpud("--config", path), 2, str(path))

    def test_wrong_flags(self):
        for arguments in (
            ("--listen", "here:there"),
            ("--sim-gpus", "99"),
            ("--max-bulk", "plenty"),
            ("--dance",),
        ):
            with self.subTest(arguments):
                done = fargpud("--driver", "sim", *arguments)
                self.assertEqual(done.returncode, 2, done.stderr)

    def test_missing_driver(self):
        done = fargpud("--driver", "/no/such/libcuda.so.1", "--listen", "127.0.0.1:0")
        self.one_clear_line(done, 3, "/no/such/libcuda.so.1")

    def test_driver_that_is_no_driver(self):
        done = fargpud("--driver", "/etc/hostname", "--listen", "127.0.0.1:0")
        self.one_clear_line(done, 3, "/etc/hostname")

    def test_unreadable_token_file(self):
        done = fargpud(
            "--driver", "sim", "--token-file", "/no/such/token", "--listen", "127.0.0.1:0"
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/no/such/token", done.stderr)

    def test_port_in_use(self):
        with testing.Daemon() as daemon:
            done = fargpud("--driver", "sim", "--listen", daemon.server)
            self.one_clear_line(done, done.returncode, daemon.server)
            self.assertNotEqual(done.returncode, 0)

    def test_session_limit(self):
        with testing.Daemon("--max-sessions", "1") as daemon:
            first = daemon.start(program(), stdin=-1)
            self.assertEqual(first.stdout.readline(), "ready\n")
            # The program is not started, or, when nobody asks before, is told.
            for flags, code in (((), 75), (("--no-check",), 4)):
                done = daemon.run(program(), "init", flags=flags)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertNotIn("CUDA_SUCCESS", done.stdout)
                self.assertIn("session", done.stderr)
            first.communicate(timeout=testing.LIMIT)
            testing.wait_until(
                lambda: daemon.run(program(), "init").returncode == 0, "the first job ended"
            )

    def test_limit_of_a_tenant(self):
        with testing.Daemon("--max-sessions-per-tenant", "1") as daemon:
            first = daemon.start(program(), stdin=-1)
            self.assertEqual(first.stdout.readline(), "ready\n")
            done = daemon.run(program(), "init")
            self.assertEqual(done.returncode, 75, done.stderr)
            self.assertIn("max-sessions-per-tenant", done.stderr)
            first.communicate(timeout=testing.LIMIT)

    def test_memory_limit(self):
        with testing.Daemon("--sim-memory", "256M") as daemon:
            for flags, code in (((), 2), (("--no-check",), 4)):
                done = daemon.run(program(), "init", flags=("--memory", "1G", *flags))
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stderr, "(?i)memory")
            self.assertEqual(
                daemon.run(program(), "init", flags=("--memory", "128M")).returncode, 0
            )

    def test_memory_of_contexts(self):
        """The contexts of the jobs have their place beside the memory that is reserved."""
        environment = {"FARGPU_SIM_CONTEXT_MEMORY": "64M"}
        with testing.Daemon("--sim-memory", "512M", environment=environment) as daemon:
            self.assertIn('context="64.0 MiB"', daemon.log_text())
            for memory, code in (("480M", 2), ("448M", 0)):
                done = daemon.run(program(), "init", flags=("--memory", memory))
                self.assertEqual(done.returncode, code, done.stderr)
            first = daemon.start(program(), stdin=-1, flags=("--memory", "192M"))
            self.assertEqual(first.stdout.readline(), "ready\n")
            for memory, code in (("224M", 75), ("192M", 0)):
                done = daemon.run(program(), "init", flags=("--memory", memory))
                self.assertEqual(done.returncode, code, done.stderr)
            first.communicate(timeout=testing.LIMIT)
        with testing.Daemon(gpus=2) as daemon:
            self.assertEqual(daemon.log_text().count('context="0 B"'), 2, daemon.log_text())

    def test_most_memory_of_a_job(self):
        for name in ("--max-memory-per-job", "--memory-per-session"):
            with self.subTest(name), testing.Daemon("--sim-memory", "1G", name, "256M") as daemon:
                done = daemon.run(program(), "init", flags=("--memory", "512M"))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("a job may have 256.0 MiB here", done.stderr)
                for flags in ((), ("--memory", "256M")):
                    done = daemon.run(program(), "init", flags=flags)
                    self.assertEqual(done.returncode, 0, done.stderr)
                old = "event=older-name" in daemon.log_text()
                self.assertEqual(old, name == "--memory-per-session")

    def test_client_environment_that_makes_no_sense(self):
        with testing.Daemon() as daemon:
            for name, value in (
                ("FARGPU_GPUS", "several"),
                ("FARGPU_MEMORY", "a lot"),
                ("FARGPU_SERVER", "host:port"),
            ):
                with self.subTest(name):
                    done = testing.run(
                        [program(), "init"],
                        env=testing.clean_environment(
                            LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                            **{"FARGPU_SERVER": daemon.server, name: value},
                        ),
                    )
                    self.assertEqual(done.returncode, 4, done.stdout)
                    self.assertIn(name, done.stderr)

    def test_client_without_a_server(self):
        libraries = testing.BUILD.client_libraries
        for environment in (
            {},
            {"FARGPU_SERVER": "127.0.0.1:1"},
            {"FARGPU_SERVER": "no-such-host.invalid"},
        ):
            with self.subTest(environment):
                done = testing.run(
                    [program(), "init"],
                    env=testing.clean_environment(LD_LIBRARY_PATH=libraries, **environment),
                )
                self.assertEqual(done.returncode, 4, done.stdout)
                self.assertNotIn("CUDA_SUCCESS", done.stdout)
                self.assertTrue(done.stderr.strip(), "a reason is said")

    def test_interposed_function(self):
        """What is linked is the preloaded function, what is asked for is the driver's own, as with
        NVIDIA's library."""
        with testing.Daemon() as daemon:
            done = testing.run(
                [program(), "interposed"],
                env=testing.clean_environment(
                    LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                    FARGPU_SERVER=daemon.server,
                    LD_PRELOAD=program().parent / "fault_interposer.so",
                    ASAN_OPTIONS=":".join(
                        filter(None, (os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0"))
                    ),
                ),
            )
            self.assertEqual(
                done.stdout.splitlines(),
                ["linked: CUDA_ERROR_ECC_UNCORRECTABLE", "asked for: CUDA_SUCCESS"],
                done.stderr,
            )

    def test_unsupported_function(self):
        with testing.Daemon() as daemon:
            done = daemon.run(program(), "unsupported")
            self.assertEqual(
                done.stdout.splitlines(),
                ["cuMulticastCreate: CUDA_ERROR_NOT_SUPPORTED"] * 3 + ["cuMemsetD8: CUDA_SUCCESS"],
                done.stderr,
            )
            named = [line for line in done.stderr.splitlines() if "cuMulticastCreate" in line]
            self.assertEqual(len(named), 1, done.stderr)


if __name__ == "__main__":
    testing.main()
