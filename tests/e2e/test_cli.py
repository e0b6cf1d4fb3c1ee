"""The command line: help, versions, doctor, devices, wrong usage, and which exit code says what."""

import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import fargpu_testing as testing

USAGE, UNREACHABLE, MISSING, NO_CAPACITY, PROTOCOL, REFUSED, CANNOT_RUN, NOT_FOUND = (
    2,
    69,
    72,
    75,
    76,
    77,
    126,
    127,
)


def fargpu(*arguments, **environment):
    return testing.run(
        [testing.BUILD.fargpu, *arguments], env=testing.clean_environment(**environment)
    )


class Cli(unittest.TestCase):
    def one_line(self, done, code, *words):
        """Failed with `code` and one clear line on stderr that holds `words`."""
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_help_and_version_everywhere(self):
        for program in (testing.BUILD.fargpu, testing.BUILD.fargpud):
            for flag in ("--help", "--version"):
                done = testing.run([program, flag])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(program.name, done.stdout)
        for command in ("run", "devices", "ps", "doctor"):
            done = fargpu(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn("--server", done.stdout)

    def test_wrong_usage(self):
        for arguments in [
            (),
            ("dance",),
            ("run",),
            ("run", "--gpus", "none", "--server", "localhost", "--", "true"),
            ("run", "--memory", "much", "--server", "localhost", "--", "true"),
            ("run", "--", "true"),
            ("run", "--sim", "--server", "localhost", "--", "true"),
            ("run", "--transport", "pigeon", "--", "true"),
            ("devices", "--server", "host:port"),
            ("run", "--sim", "--sim-gpus", "17", "--", "true"),
        ]:
            with self.subTest(arguments):
                self.one_line(fargpu(*arguments), USAGE, "fargpu:")

    def test_what_is_said_about_wrong_words(self):
        for arguments, words in [
            ("rum", ["'rum' is no command", "run, devices"]),
            ("--bogus", ["'--bogus' is not expected", "(see fargpu --help)"]),
            ("run --bogus -- true", [": '--bogus' is not expected", "(see fargpu run --help)"]),
            ("bench app --bogus", ["'--bogus' is not expected", "(see fargpu bench app --help)"]),
            ("devices more", ["'more' is not expected", "(see fargpu devices --help)"]),
            ("run true --server host", ["no server", "go before the program"]),
            ("devices -s http://host:1", ["'http://host:1'", "host:port"]),
            ("devices -s ::1:24922", ["'::1:24922'", "[address]:port"]),
        ]:
            with self.subTest(arguments):
                self.one_line(fargpu(*arguments.split()), USAGE, *words)

    def test_output_that_cannot_be_written(self):
        with testing.Daemon() as daemon, open("/dev/full", "w", encoding="ascii") as full:
            at = ("--server", daemon.server)
            for arguments in [
                *(("ps", *at), ("devices", *at), ("smi", *at), ("doctor", *at, "--pings", "1")),
                *(("scan", testing.BUILD.fargpu), ("--help",)),
            ]:
                done = subprocess.run(
                    [testing.BUILD.fargpu, *arguments],
                    env=testing.clean_environment(FARGPU_MAPPED="touched"),
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                self.assertEqual(done.returncode, 71, f"{arguments}: {done.stderr}")
                self.assertIn("No space left on device", done.stderr)

    def test_a_peer_that_is_silent(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            server = f"127.0.0.1:{silent.getsockname()[1]}"
            for command in (("devices",), ("run", "--", "true")):
                begin = time.monotonic()
                done = fargpu(*command, FARGPU_SERVER=server, FARGPU_CONNECT_TIMEOUT="500ms")
                self.one_line(done, UNREACHABLE, server)
                self.assertLess(time.monotonic() - begin, 8)  # without the setting it is 10 s

    def test_no_folder_for_a_private_daemon(self):
        self.one_line(
            fargpu("run", "--sim", "--", "true", TMPDIR="/nonexistent"),
            71,
            "/nonexistent",
            "TMPDIR",
        )

    def test_an_installation_without_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = pathlib.Path(folder, "fargpu")
            alone.write_bytes(testing.BUILD.fargpu.read_bytes())
            alone.chmod(0o755)
            done = testing.run([alone, "run", "--sim", "--", "true"])
            self.one_line(done, MISSING, "components server and sim")

    def test_programs_that_cannot_start(self):
        with testing.Daemon() as daemon:
            for start in (("--server", daemon.server), ("--sim",)):
                self.one_line(
                    fargpu("run", *start, "--", "no-such-command"), NOT_FOUND, "no-such-command"
                )
                self.one_line(
                    fargpu("run", *start, "--", "/etc/hostname"), CANNOT_RUN, "/etc/hostname"
                )
                self.one_line(fargpu("run", *start, "--", "/"), CANNOT_RUN, "folder")
                self.one_line(fargpu("run", *start, "--", "./none"), NOT_FOUND, "./none")
                self.one_line(
                    fargpu("run", *start, "--", "nvidia-smi", PATH="/nowhere"),
                    NOT_FOUND,
                    "nvidia-smi",
                    "`fargpu smi`",
                )
                with tempfile.TemporaryDirectory() as folder:
                    for text, why in (
                        ("#!/no/such/interpreter\n", "first line"),
                        ("echo nothing\n", "#!/bin/sh"),
                    ):
                        script = pathlib.Path(folder, "script")
                        script.write_text(text)
                        script.chmod(0o755)
                        self.one_line(fargpu("run", *start, "--", script), CANNOT_RUN, why)

    def test_programs_that_will_not_find_the_library(self):
        with tempfile.TemporaryDirectory() as folder:
            docker = pathlib.Path(folder, "docker")
            docker.write_text("#!/bin/sh\nexit 3\n")
            docker.chmod(0o755)
            self.one_line(fargpu("run", "--sim", "--", docker), 3, "docker", "fargpu run")
            foreign = pathlib.Path(folder, "foreign")
            header = bytearray(pathlib.Path("/bin/true").read_bytes()[:64])
            header[18] = 183  # e_machine: AArch64
            foreign.write_bytes(header)
            foreign.chmod(0o755)
            done = fargpu("run", "--sim", "--", foreign)
            self.assertEqual(done.returncode, CANNOT_RUN, done.stderr)
            self.assertIn("not a program for x86-64", done.stderr)
            self.check_loaders(pathlib.Path(folder))
            if os.geteuid() == 0:
                other = pathlib.Path(folder, "other")
                other.write_bytes(pathlib.Path("/bin/true").read_bytes())
                os.chown(other, 65534, -1)
                other.chmod(0o4755)
                self.one_line(fargpu("run", "--sim", "--", other), 0, "changes its user")
            self.assertEqual(fargpu("run", "--sim", "--", "true").stderr, "")

    def check_loaders(self, folder):
        """Programs with another loader than glibc's, or with none; made of /bin/true."""
        true = pathlib.Path("/bin/true").read_bytes()
        loader = b"/lib64/ld-linux-x86-64.so.2"
        self.assertIn(loader, true)
        musl = folder / "musl"
        musl.write_bytes(
            true.replace(loader, b"/lib/ld-musl-x86_64.so.1".ljust(len(loader), b"\0"))
        )
        musl.chmod(0o755)
        done = fargpu("run", "--sim", "--", musl)
        self.assertIn("is for musl", done.stderr)
        static = bytearray(true)
        (table,) = struct.unpack_from("<Q", static, 32)
        size, count = struct.unpack_from("<HH", static, 54)
        for segment in range(table, table + size * count, size):
            if struct.unpack_from("<I", static, segment) == (3,):  # PT_INTERP
                struct.pack_into("<I", static, segment, 0)
        program = folder / "static"
        for text, doubtful in ((b"", False), (b"\0libcuda.so.1\0", True)):
            program.write_bytes(static + bytes(1 << 20) + text)
            program.chmod(0o755)
            done = fargpu("run", "--sim", "--", program)
            self.assertEqual("is linked statically" in done.stderr, doubtful, done.stderr)

    def test_tools_that_look_into_the_driver(self):
        for tool, instead in (
            ("nsys", "FARGPU_TRACE"),
            ("/opt/nvidia/ncu", "FARGPU_TRACE"),
            ("compute-sanitizer", "--sim"),
            ("cuda-gdb", "gdb"),
        ):
            done = fargpu("run", "--sim", "--", tool, "true")
            self.one_line(done, USAGE, tool.rsplit("/", 1)[-1])
            self.assertIn(instead, done.stderr)
        around = {"CUDA_INJECTION64_PATH": "/opt/nvidia/libToolsInjection64.so"}
        self.one_line(fargpu("run", "--sim", "--", "true", **around), USAGE, "nsys")

    def test_a_program_under_a_tool_says_so_and_runs(self):
        with testing.Daemon() as daemon:
            done = testing.run(
                [testing.BUILD.program("counted_copies"), "pageable", "2"],
                env=testing.clean_environment(
                    FARGPU_SERVER=daemon.server,
                    LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                    CUDA_INJECTION64_PATH="/opt/another.so",
                ),
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stderr.splitlines() if "CUDA_INJECTION64_PATH" in line]
        self.assertEqual(len(lines), 1, done.stderr)

    def test_no_server_there(self):
        for command in (("run", "--", "true"), ("devices",), ("ps",)):
            self.one_line(fargpu(*command, FARGPU_SERVER="127.0.0.1:1"), UNREACHABLE, "127.0.0.1:1")
        self.one_line(
            fargpu("devices", "--server", "no-such-host.invalid"), MISSING, "no-such-host.invalid"
        )
        self.one_line(
            fargpu(
                "run",
                "--no-check",
                "--server",
                "127.0.0.1:1",
                "--",
                "sh",
                "-c",
                "echo x >&2; exit 3",
            ),
            3,
            "x",
        )

    def test_token(self):
        with tempfile.TemporaryDirectory() as folder:
            token = pathlib.Path(folder) / "token"
            token.write_text("a-long-secret\n")
            token.chmod(0o600)
            wrong = pathlib.Path(folder) / "wrong"
            wrong.write_text("something-else\n")
            with testing.Daemon("--token-file", token) as daemon:
                self.one_line(fargpu("devices", "--server", daemon.server), REFUSED, "token")
                self.one_line(
                    fargpu("run", "--server", daemon.server, "--token-file", wrong, "--", "true"),
                    REFUSED,
                    "token",
                )
                self.assertEqual(
                    fargpu("devices", "--server", daemon.server, "--token-file", token).returncode,
                    0,
                )
                self.assertEqual(
                    fargpu(
                        "devices", FARGPU_SERVER=daemon.server, FARGPU_TOKEN="a-long-secret"
                    ).returncode,
                    0,
                )

    def test_token_files_that_are_of_no_use(self):
        """71: the file cannot be read; 2: it has no token. The line names what was given."""
        with tempfile.TemporaryDirectory() as folder, testing.Daemon() as daemon:
            empty = pathlib.Path(folder, "empty")
            empty.touch()
            for file, code in (("/no/such/file", 71), (folder, 71), (empty, USAGE)):
                for command in (("ps",), ("smi",), ("run", "--", "true")):
                    with self.subTest(file=file, command=command):
                        given = (command[0], "--token-file", file, *command[1:])
                        done = fargpu(*given, FARGPU_SERVER=daemon.server)
                        self.one_line(done, code, "--token-file: ", str(file))
                        self.assertNotIn("FARGPU_", done.stderr)
                        done = fargpu(*command, FARGPU_SERVER=daemon.server, FARGPU_TOKEN_FILE=file)
                        self.one_line(done, code, "FARGPU_TOKEN_FILE: ", str(file))
            both = {"FARGPU_TOKEN": "x", "FARGPU_TOKEN_FILE": "/no/such/file"}
            self.assertEqual(fargpu("ps", FARGPU_SERVER=daemon.server, **both).returncode, 0)
        tls = {"FARGPU_SERVER": "tls://127.0.0.1:1", "FARGPU_TLS_CA": "/no/such/file"}
        self.one_line(fargpu("ps", **tls), 71, "FARGPU_TLS_CA: ", "/no/such/file")

    def test_devices(self):
        with testing.Daemon("--sim-memory", "512M", gpus=2) as daemon:
            lines = fargpu("devices", "--server", daemon.server).stdout.splitlines()
            self.assertEqual(len(lines), 3, lines)
            for index, line in enumerate(lines[1:]):
                self.assertEqual(line.split()[0], str(index))
                self.assertTrue(line.split()[1].startswith("GPU-"))
                self.assertIn("512.0 MiB", line)

    def test_doctor(self):
        with testing.Daemon() as daemon:
            settings = {"FARGPU_MAPPED": "touched"}  # also beside an adapter
            done = fargpu("doctor", "--server", daemon.server, "--pings", "5", **settings)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(str(testing.BUILD.client_libraries / "libcuda.so.1"), done.stdout)
            for word in (
                "server",
                "versions",
                "transport",
                "shm",
                "round trip",
                "us (median of 5)",
                "managed",
                "mapped",
                "userfaultfd",
                "all is well",
            ):
                self.assertIn(word, done.stdout)
            done = fargpu("doctor", "--server", daemon.server, FARGPU_MANAGED="eagre")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("FARGPU_MANAGED: 'eagre'", done.stdout)
            done = fargpu("doctor", "--server", daemon.server, FARGPU_MAPPED="eager")
            self.assertIn("FARGPU_MAPPED=eager", done.stdout)
            done = fargpu("doctor", "--server", daemon.server, FARGPU_MAPPED="eagre")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("FARGPU_MAPPED: 'eagre'", done.stdout)
        done = fargpu("doctor", "--server", "127.0.0.1:1")
        self.assertEqual(done.returncode, UNREACHABLE)
        self.assertRegex(done.stdout, "FAIL  server +cannot connect to 127.0.0.1:1: ")

    def test_doctor_says_of_a_program_what_run_says(self):
        with testing.Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
            at = ("--server", daemon.server)
            tool, docker, text = (pathlib.Path(folder, name) for name in ("nsys", "docker", "text"))
            for file, mode in ((tool, 0o755), (docker, 0o755), (text, 0o644)):
                file.write_text("#!/bin/sh\n")
                file.chmod(mode)
            for program, code in (
                *((tool, USAGE), (docker, MISSING), (text, CANNOT_RUN), (folder, CANNOT_RUN)),
                *(("./none", NOT_FOUND), ("true", 0)),
            ):
                done = fargpu("doctor", *at, "--program", program, FARGPU_MAPPED="touched")
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                self.assertEqual("all is well" in done.stdout, code == 0, done.stdout)
                if code not in (0, MISSING):  # it warns, and starts the program
                    done = fargpu("run", *at, "--", program)
                    self.assertEqual(done.returncode, code, done.stderr)
            around = {"CUDA_INJECTION64_PATH": "/opt/nvidia/libToolsInjection64.so"}
            self.assertEqual(fargpu("doctor", *at, **around).returncode, USAGE)

    def test_doctor_asks_for_what_run_would_ask_for(self):
        with testing.Daemon("--sim-memory", "512M") as daemon:
            for wish in (
                {"FARGPU_DEVICES": "7"},
                {"FARGPU_GPUS": "5"},
                {"FARGPU_MEMORY": "1G"},
                {"FARGPU_GPUS": "0"},
                {"FARGPU_TRANSPORT": "pigeon"},
            ):
                done = fargpu("doctor", FARGPU_SERVER=daemon.server, **wish)
                as_run = fargpu("run", "--", "true", FARGPU_SERVER=daemon.server, **wish)
                self.assertEqual((done.returncode, as_run.returncode), (USAGE, USAGE), wish)
                self.assertIn("FAIL  ", done.stdout)
            done = fargpu("doctor", FARGPU_SERVER=daemon.server, FARGPU_LINK="rtt=5ms")
            self.assertRegex(done.stdout, "link +rtt=5ms is emulated for programs")
            inside = fargpu(
                *("run", "--memory", "400M", "--", testing.BUILD.fargpu, "doctor"),
                FARGPU_SERVER=daemon.server,
                FARGPU_MAPPED="touched",
            )
            self.assertEqual(inside.returncode, 0, inside.stdout)

    def test_names_that_are_nearly_settings(self):
        with testing.Daemon() as daemon:
            server = {"FARGPU_SERVER": daemon.server}
            done = fargpu("ps", FARGPU_TRANPORT="tcp", FARGPU_BIN="/opt", **server)
            self.one_line(done, 0, "FARGPU_TRANPORT is no setting", "FARGPU_TRANSPORT")
            self.assertEqual(fargpu("ps", FARGPU_SIM_GPUS="2", **server).stderr, "")

    def test_a_level_that_is_none_is_told_once(self):
        with testing.Daemon() as daemon:
            program = testing.BUILD.program("counted_copies")
            for start in ((testing.BUILD.fargpu, "run", "--"), ()):
                done = testing.run(
                    [*start, program, "pageable", "1"],
                    env=testing.clean_environment(
                        FARGPU_SERVER=daemon.server,
                        FARGPU_LOG="loud",
                        LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                    ),
                )
                self.one_line(done, 0, "FARGPU_LOG='loud'")

    def test_doctor_sees_a_foreign_library(self):
        with testing.Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
            foreign = pathlib.Path(folder) / "libcuda.so.1"
            built = testing.run(
                [
                    "cc",
                    "-shared",
                    "-fPIC",
                    "-x",
                    "c",
                    "-",
                    "-Wl,-soname,libcuda.so.1",
                    "-o",
                    foreign,
                ],
                input="int cuInit(unsigned flags) { return 0; }",
            )
            self.assertEqual(built.returncode, 0, built.stderr)
            done = fargpu("doctor", "--server", daemon.server, LD_PRELOAD=foreign)
            self.assertEqual(done.returncode, MISSING, done.stdout)
            self.assertIn("not fargpu's", done.stdout)

    def test_environment_of_the_program(self):
        with testing.Daemon() as daemon:
            done = fargpu(
                "run",
                "--server",
                daemon.server,
                "--gpus",
                "1",
                "--memory",
                "64M",
                "--",
                "env",
                LD_LIBRARY_PATH="/some/where",
            )
            environment = dict(
                line.split("=", 1) for line in done.stdout.splitlines() if "=" in line
            )
            self.assertEqual(
                environment["LD_LIBRARY_PATH"],
                f"{testing.BUILD.client_libraries}{os.pathsep}/some/where",
            )
            self.assertEqual(environment["FARGPU_SERVER"], daemon.server)
            self.assertEqual(
                (environment["FARGPU_GPUS"], environment["FARGPU_MEMORY"]), ("1", "64M")
            )
            self.assertNotIn("LD_PRELOAD", environment)
            self.assertEqual(
                fargpu("run", "--server", daemon.server, "--", "echo", "-n", "--", "--x").stdout,
                "-- --x",
            )

    def test_what_follows_the_program_is_the_programs(self):
        words = ("--server", "x", "--help", "-h", "--", "--gpus", "-n")
        for start in (("--", "echo"), ("echo",)):
            done = fargpu("run", "--no-check", "--server", "127.0.0.1:1", *start, *words)
            self.assertEqual((done.returncode, done.stdout), (0, " ".join(words) + "\n"))
        self.one_line(
            fargpu("run", "--no-check", "--server", "127.0.0.1:1", "--", "--"), NOT_FOUND, "'--'"
        )

    def test_wish_that_cannot_be_fulfilled(self):
        program = testing.BUILD.folder / "tests" / "fault" / "fault_program"
        with testing.Daemon("--sim-memory", "512M") as daemon:
            run = ("run", "--server", daemon.server, "--gpus", "5")
            # The program does not start; or, when nobody asks before, it is told.
            self.one_line(fargpu(*run, "--", program, "init"), USAGE, "5 GPUs")
            done = fargpu(*run, "--no-check", "--", program, "init")
            self.assertEqual(done.returncode, 4, done.stdout)
            self.assertIn("5 GPUs", done.stderr)
            self.assertEqual(fargpu("devices", "--server", daemon.server).returncode, 0)


if __name__ == "__main__":
    testing.main()
