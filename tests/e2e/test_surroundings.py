"""What a program does to the process around the driver: descriptors that it closes, environment,
folder, user and root that it changes, small stacks, signals. Results must be as natively."""

import itertools
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest

import fargpu_testing as testing

PROGRAM = "surroundings"
ROOT = os.geteuid() == 0
SOURCES = pathlib.Path(__file__).resolve().parents[2]


class Surroundings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemons = [testing.Daemon().__enter__(), testing.Daemon().__enter__()]

    @classmethod
    def tearDownClass(cls):
        for daemon in cls.daemons:
            daemon.__exit__(None)

    def run_on(self, servers, *program, flags=(), **options):
        names = ",".join(daemon.server for daemon in self.daemons[:servers])
        command = [testing.BUILD.fargpu, "run", "--server", names, *flags, "--", *program]
        done = testing.run(command, timeout=120, **options)
        self.assertEqual(done.returncode, 0, f"{program}: {done.stdout}{done.stderr}")
        return done

    def run_program(self, *operations, servers=1, **options):
        return self.run_on(servers, testing.BUILD.program(PROGRAM), *operations, **options)

    # --- descriptors ---

    def test_standard_descriptors_closed_in_any_order(self):
        orders = [
            "".join(order) for count in (1, 2, 3) for order in itertools.permutations("012", count)
        ]
        # Where the set is the same, so is what happens before CUDA is used.
        sets = sorted({"".join(sorted(order)) for order in orders})
        for servers in (1, 2):
            for closed in sets:
                after = [f"write={closed}", "work", f"closed={closed}", "apart"]
                self.run_program(f"close={closed}", "load", "work", *after, servers=servers)
                self.run_program("load", f"close={closed}", "work", *after, servers=servers)
        for closed in orders:
            after = [f"write={closed}", "work", f"closed={closed}", "apart"]
            self.run_program("load", "init", f"close={closed}", "work", *after)
            steps = [step for one in closed for step in (f"close={one}", "work", f"write={one}")]
            self.run_program("load", "work", *steps, *after)

    def test_kernels_print_where_nothing_is_open(self):
        """The text goes nowhere: not into memory, nor into a session."""
        done = self.run_program("load", "prints")
        self.assertEqual(done.stdout.count("that a kernel has printed"), 10)
        for servers in (1, 2):
            for closed in ("1", "12", "012"):
                steps = ["prints", "work", "prints", "work", f"closed={closed}", "apart"]
                self.run_program(f"close={closed}", "load", *steps, servers=servers)
                self.run_program("load", "work", f"close={closed}", *steps, servers=servers)

    def test_our_descriptors_are_apart(self):
        self.run_program(
            "load",
            "work",
            "apart",
            "files=20",
            "work",
            "apart",
            "limit-is=1024",
            preexec_fn=self.limit(1024, 4096),
        )

    @staticmethod
    def limit(soft, hard):
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_loops_that_close_descriptors_find_none(self):
        for first, last in ((3, 255), (3, 1023)):
            self.run_program(
                "load",
                "work",
                f"loop={first},{last}",
                "files=60",
                "work",
                "write=",
                preexec_fn=self.limit(1024, 4096),
            )

    def test_low_limits(self):
        for soft, hard in ((64, 64), (64, 4096), (256, 256), (256, 1024), (512, 512), (1024, 1024)):
            self.run_program(
                "load", "work", f"limit-is={soft}", "work", preexec_fn=self.limit(soft, hard)
            )
        # The program changes it when we have descriptors above and below.
        self.run_program(
            "load",
            "work",
            "limit=40",
            "work",
            "limit=4000",
            "work",
            "limit=64",
            "work",
            preexec_fn=self.limit(1024, 4096),
        )

    def test_everything_is_closed(self):
        """Natively later calls fail; the program's files get the numbers and stay as they are."""
        for hard in (1024, 4096):
            for after in ("init", "work"):
                done = self.run_program(
                    "load",
                    after,
                    "range=3,899",
                    "range=901,-1",
                    "limit=1024",
                    "files=800",
                    "fails",
                    "wait=1500",
                    "fails",
                    preexec_fn=self.limit(1024, hard),
                )
                self.assertIn("is lost", done.stderr)
        # Before there is a session there is nothing to lose.
        self.run_program("load", "range=3,899", "range=901,-1", "files=50", "work")

    def test_memory_is_never_old_when_everything_is_closed(self):
        """What the GPU has written cannot be fetched any more: it must not read as it was."""
        for refused in (None, "refused"):
            environment = testing.clean_environment(FARGPU_TEST_USERFAULTFD=refused)
            for closing in (["range=3,899", "range=901,-1"], ["range=901,-1"]):
                steps = ["load", "written", *closing, "not-old", "wait=1200", "not-old"]
                self.run_program(*steps, env=environment, preexec_fn=self.limit(1024, 4096))

    def test_a_daemon_without_standard_descriptors(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-test-"))
        port_file = folder / "port"
        for closed in ("<&- >&- 2>&-", "2>&-", "<&-"):
            port_file.unlink(missing_ok=True)
            command = [
                testing.BUILD.fargpud,
                "--driver",
                "sim",
                "--listen",
                "127.0.0.1:0",
                "--port-file",
                port_file,
                "--worker",
                testing.BUILD.worker,
            ]
            shell = " ".join(map(str, command))
            daemon = subprocess.Popen(
                ["sh", "-c", f"exec {shell} {closed}"], env=testing.clean_environment()
            )
            try:
                port = testing.wait_until(
                    lambda: port_file.exists() and port_file.read_text().strip(), "it listens"
                )
                for fd in (0, 1, 2):
                    what = os.readlink(f"/proc/{daemon.pid}/fd/{fd}")
                    self.assertNotIn("socket", what)
                    self.assertNotIn("anon_inode", what)
                done = testing.run(
                    [
                        testing.BUILD.fargpu,
                        "run",
                        "--server",
                        f"127.0.0.1:{port.split()[0]}",
                        "--",
                        testing.BUILD.program(PROGRAM),
                        "load",
                        "work",
                    ]
                )
                self.assertEqual(done.returncode, 0, done.stderr)
            finally:
                daemon.terminate()
                daemon.wait()

    # --- environment, folder, user, root ---

    def test_the_environment_of_the_load_counts(self):
        self.run_program("load", "clearenv", "work")
        self.run_program("load", "version", "clearenv", "init", "work")
        self.run_program("load", "set=FARGPU_SERVER=nowhere.invalid", "set=FARGPU_TOKEN=x", "work")

    def test_an_environment_cleared_before_the_load(self):
        for flags in ((), ("--preload", "always")):
            self.run_program("clearenv", "load", "work", flags=flags)

    def test_devices_are_chosen_by_cuInit(self):
        """As measured on a driver: CUDA_VISIBLE_DEVICES counts when cuInit is called."""
        hide, show = "set=CUDA_VISIBLE_DEVICES=", "unset=CUDA_VISIBLE_DEVICES"
        self.run_program("load", hide, "init=100", show, "init=0", "devices=1", "work")
        self.run_program("load", "version", hide, "init=100", show, "init=0", "work")
        self.run_program("load", "init=0", hide, "init=0", "devices=1", "work")
        self.run_program(hide, "load", show, "init=0", "devices=1", "work")

    def test_relative_paths(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-test-"))
        (folder / "token").write_text("a long token\n")
        token = folder / "token"
        token.chmod(0o600)
        with testing.Daemon("--token-file", token, "--listen", folder / "s.sock") as daemon:
            operations = [testing.BUILD.program(PROGRAM), "load", "chdir=/", "work"]
            for server in (daemon.server, "./s.sock", "unix:s.sock"):
                if testing.tls_certificates() is not None and "sock" in server:
                    continue
                environment = testing.clean_environment(
                    FARGPU_TRACE="trace", FARGPU_LOG="info", FARGPU_LOG_FILE="log"
                )
                if "sock" in server:
                    environment.pop("FARGPU_TRANSPORT", None)
                done = testing.run(
                    [
                        testing.BUILD.fargpu,
                        "run",
                        "--server",
                        server,
                        "--token-file",
                        "token",
                        "--report=report.json",
                        "--",
                        *operations,
                    ],
                    cwd=folder,
                    env=environment,
                )
                self.assertEqual(done.returncode, 0, f"{server}: {done.stderr}")
                for made in ("trace", "log", "report.json"):
                    self.assertTrue((folder / made).exists(), f"{server}: {made}")
                    (folder / made).unlink()
            # Without `fargpu run`, by variables alone.
            environment = testing.clean_environment(
                FARGPU_SERVER=daemon.server,
                FARGPU_TOKEN_FILE="token",
                LD_LIBRARY_PATH=testing.BUILD.client_libraries,
            )
            done = testing.run(operations, cwd=folder, env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(ROOT, "only root changes user and root")
    def test_another_user_and_root(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-test-"))
        token = folder / "token"
        token.write_text("a long token\n")
        token.chmod(0o600)
        empty = folder / "empty"
        empty.mkdir()
        with testing.Daemon("--token-file", token) as daemon:
            for operations in (
                ["user=65534"],
                [f"chroot={empty}"],
                [f"chroot={empty}", "user=65534", "clearenv"],
            ):
                for before in ([], ["init"]):
                    done = daemon.run(
                        testing.BUILD.program(PROGRAM),
                        "load",
                        *before,
                        *operations,
                        "work",
                        flags=("--token-file", token),
                    )
                    self.assertEqual(done.returncode, 0, f"{operations}: {done.stderr}")

    @unittest.skipUnless(ROOT, "only root changes its root")
    @unittest.skipIf(testing.tls_certificates() is None, "only TLS has authorities")
    def test_authorities_of_the_system_after_a_new_root(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-test-"))
        (folder / "empty").mkdir()
        authority = pathlib.Path(testing.tls_certificates().file("ca.pem"))
        name = subprocess.run(
            ["openssl", "x509", "-noout", "-subject_hash", "-in", authority],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.strip()
        (folder / "none.pem").touch()
        (folder / "some").mkdir()
        (folder / "some" / "other.pem").write_text("not the name of an authority's file")
        (folder / "some" / f"{name}.0").write_bytes(authority.read_bytes())
        program = [testing.BUILD.program(PROGRAM), "load", f"chroot={folder / 'empty'}"]
        for file, folders, result in (
            (authority, folder / "empty", "work"),
            (folder / "none.pem", f"{folder / 'empty'}:{folder / 'some'}", "work"),
            (folder / "none.pem", folder / "empty", "init=800"),
        ):
            environment = testing.clean_environment(SSL_CERT_FILE=file, SSL_CERT_DIR=folders)
            del environment["FARGPU_TLS_CA"]
            done = self.daemons[0].run(*program, result, flags=("--no-check",), env=environment)
            self.assertEqual(done.returncode, 0, f"{file} {folders}: {done.stderr}")

    @unittest.skipUnless(ROOT, "only root changes user and root")
    def test_what_cannot_be_found_any_more_is_explained(self):
        """A driver returns 304 then: CUDA_ERROR_OPERATING_SYSTEM."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-test-"))
        empty = folder / "empty"
        empty.mkdir()
        program = [testing.BUILD.program(PROGRAM), "load"]
        new_root, new_user = "changed its root directory", "changed its user or group"

        def fails(server, change, explanation):
            command = [testing.BUILD.fargpu, "run", "--no-check", "--server", server, "--"]
            environment = testing.clean_environment()
            environment.pop("FARGPU_TRANSPORT", None)
            done = testing.run([*command, *program, change, "init=304"], env=environment)
            self.assertEqual(done.returncode, 0, f"{server} {change}: {done.stderr}")
            self.assertIn(explanation, done.stderr)

        fails("fargpu-test.invalid:1", f"chroot={empty}", new_root)
        with testing.Daemon("--listen", folder / "s.sock"):
            fails(folder / "s.sock", f"chroot={empty}", new_root)
            fails(folder / "s.sock", "user=65534", new_user)
        for variable in ("FARGPU_LOG_FILE", "FARGPU_TRACE", "FARGPU_REPORT"):
            environment = testing.clean_environment(**{variable: folder / "written"})
            for change, explanation in ((f"chroot={empty}", new_root), ("user=65534", new_user)):
                done = self.daemons[0].run(*program, change, "work", env=environment)
                self.assertEqual(done.returncode, 0, f"{variable}: {done.stderr}")
                self.assertRegex(done.stderr, f"{variable}=.*{explanation}")

    @unittest.skipUnless(ROOT, "only root changes its root")
    def test_management_in_a_new_root(self):
        """2 would be a wrong argument; nvmlInit has none."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-test-"))
        token = folder / "token"
        token.write_text("a long token\n")
        token.chmod(0o600)
        program = (
            "import ctypes, os, sys\n"
            "nvml = ctypes.CDLL('libnvidia-ml.so.1')\n"
            "os.chroot(sys.argv[1])\n"
            "os.chdir('/')\n"
            "print(nvml.nvmlInit_v2(), flush=True)\n"
            "os._exit(0)\n"
        )
        command = [sys.executable, "-c", program, folder]
        with testing.Daemon("--token-file", token) as daemon:
            done = daemon.run(*command, flags=("--token-file", token))
            self.assertEqual(done.stdout, "0\n", done.stderr)
            for variable, value, result in (
                ("FARGPU_TOKEN_FILE", "/nonexistent", 9),  # DRIVER_NOT_LOADED
                ("FARGPU_SERVER", "fargpu-test.invalid:1", 17),  # OPERATING_SYSTEM
            ):
                done = testing.run(
                    [testing.BUILD.fargpu, "run", "--no-check", "--", *command],
                    env=testing.clean_environment(
                        **({"FARGPU_SERVER": daemon.server} | {variable: value})
                    ),
                )
                self.assertEqual(done.stdout, f"{result}\n", done.stderr)

    def test_wrong_settings_are_no_wrong_argument(self):
        """cuInit(0) has no wrong argument: 802 is CUDA_ERROR_SYSTEM_NOT_READY."""
        program = testing.BUILD.program(PROGRAM)
        wrongs = [{"FARGPU_TOKEN_FILE": "/nonexistent"}, {"FARGPU_GPUS": "many"}]
        if testing.tls_certificates() is not None:
            wrongs.append({"FARGPU_TLS_CA": "/nonexistent"})
        for wrong in wrongs:
            environment = testing.clean_environment(**wrong)
            done = self.daemons[0].run(
                program, "load", "init=802", flags=("--no-check",), env=environment
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            named = next(iter(wrong.items()))
            self.assertIn(named[1] if named[0] == "FARGPU_TLS_CA" else named[0], done.stderr)

    # --- threads ---

    def test_small_stacks(self):
        self.run_program("load", "small=32", "init", "small=32", "work", "small=32", "work")
        self.run_program("load", "small=32", "work", servers=2)

    def test_no_function_needs_a_large_stack(self):
        """32 KiB of pthread_attr_setstacksize() include a guard page."""
        exports = (SOURCES / "schema" / "generated" / "exports.map").read_text()
        names = sorted(set(re.findall(r"\b(cu[A-Z]\w*);", exports)))
        self.assertGreater(len(names), 600)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(names) + "\n")
            file.flush()
            for servers in (1, 2):
                self.run_on(
                    servers,
                    testing.BUILD.program("stack_use"),
                    (32 - 4) << 10,
                    file.name,
                    env=testing.clean_environment(FARGPU_LOG="off"),
                )

    def test_our_threads_take_no_signals(self):
        for settings in ({}, {"FARGPU_LINK": "rtt=50us"}, {"FARGPU_WATCHDOG": "10s"}):
            self.run_program("load", "work", "signals", env=testing.clean_environment(**settings))


if __name__ == "__main__":
    testing.main()
