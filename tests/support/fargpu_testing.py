"""What the Python tests share: where a build lies, private daemons, running programs, and frames
made by hand.

Tests talk to loopback only; every process started here is ended here, by its own id. Nothing
measures speed: limits only keep a broken build from hanging the test run."""

import argparse
import ast
import atexit
import ctypes
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 120  # seconds for one program; sanitizers are slow
DRIVER_ENVIRONMENT = (
    "FARGPU_",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
)


# A program that says what nvmlInit returns, and how many of two more calls return the same.
NVML_INIT = """
import ctypes
init = ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2
code = init()
print(code, int(init() == code and init() == code))
"""


class Build:
    """The parts of one build folder. With `client`, another build folder, what runs on the client's
    side is from there: fargpu, its libcuda.so.1 and, unless `programs` is a folder with them, the
    programs. With `worker`, sessions are executed by the fargpu-worker of that build folder."""

    def __init__(self, folder, client=None, programs=None, worker=None):
        self.folder = pathlib.Path(folder).resolve()
        prefix = self.client_prefix(pathlib.Path(client).resolve()) if client else self.folder
        self.fargpu = prefix / "bin" / "fargpu"
        self.fargpud = self.folder / "bin" / "fargpud"
        self.worker = pathlib.Path(worker or folder).resolve() / "bin" / "fargpu-worker"
        self.client_libraries = prefix / "lib" / "fargpu"
        self.sim_libraries = self.folder / "lib" / "sim-direct"
        self.programs = pathlib.Path(
            programs or pathlib.Path(client or folder) / "tests" / "programs"
        ).resolve()

    def client_prefix(self, client):
        """An installation of the client's parts of one build and the daemon of the other: `fargpu
        run --sim` finds its daemon beside it."""
        prefix = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-prefix-")).resolve()
        prefix.chmod(0o755)  # some tests run it as another user
        atexit.register(shutil.rmtree, prefix, ignore_errors=True)
        (prefix / "bin").mkdir()
        for program in ("fargpu", "fargpu-measure"):
            if (client / "bin" / program).exists():  # an older release lacks the second
                shutil.copy2(client / "bin" / program, prefix / "bin")
        (prefix / "bin" / "fargpud").symlink_to(self.folder / "bin" / "fargpud")
        shutil.copytree(client / "lib" / "fargpu", prefix / "lib" / "fargpu", symlinks=True)
        return prefix

    def program(self, name):
        path = self.programs / name
        if not path.exists():
            # Where everything can be built, a program that is missing is no reason to be content.
            assert "FARGPU_TEST_PROGRAMS_EXPECTED" not in os.environ, f"{path} is missing"
            raise unittest.SkipTest(f"{name} was not built (there was no nvcc, or no NVRTC)")
        return path


BUILD = None  # set by main()


def not_with_an_older_release(why):
    """Of a test or a class: skipped where one end is of the previous release (tests/skew)."""
    return unittest.skipIf("FARGPU_TEST_OLD" in os.environ, f"an older release: {why}")


# All switches of the simulated driver with which calls wait as real drivers' do: programs run so
# over one transport, so that a worker that sits in such a call is seen.
WAITING_DRIVER = {"FARGPU_SIM_LOCKED_WAITS": "1", "FARGPU_SIM_STREAM_WAITS": "1"}


def clean_environment(**more):
    """The environment without anything that points at a server or a driver, plus `more`; a value
    None removes a variable.

    FARGPU_TEST_TRANSPORT forces a transport on everything that a test starts; ctest registers the
    same test for several. "tcp-4" is TCP by four connections, "tls" is TCP with TLS."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(DRIVER_ENVIRONMENT)}
    if "FARGPU_TEST_TRANSPORT" in os.environ:
        transport, _, connections = os.environ["FARGPU_TEST_TRANSPORT"].partition("-")
        environment["FARGPU_TRANSPORT"] = "tcp" if transport == "tls" else transport
        if transport == "tls":
            environment["FARGPU_TLS_CA"] = tls_certificates().file("ca.pem")
        if connections:
            environment["FARGPU_TCP_CONNECTIONS"] = connections
    environment.update({k: str(v) for k, v in more.items() if v is not None})
    return environment


def show_reports(text):
    """Undefined behaviour that a process reported on its stderr, for sanitized.py to see."""
    if ": runtime error: " in text:
        sys.stderr.write(f"--- a sanitizer's report ---\n{text}\n")


def without_signal_handlers():
    """Variables with which a sanitizer in the program leaves SIGSEGV and SIGABRT alone, so that the
    program dies of them."""
    more = "handle_segv=0:handle_abort=0:handle_sigbus=0"
    return {
        name: ":".join(filter(None, (os.environ.get(name), more)))
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS")
    }


# ThreadSanitizer keeps the addresses of the client's pinned memory for itself, so a worker that is
# built with it refuses to share memory of a client that is not (sanitized.py sets the variable).
WORKER_SHARES_MEMORY = "TSAN_OPTIONS" not in os.environ

# Sanitizers have their shadow memory where the simulated driver would have its device memory.
SIMULATOR_CHOOSES_ADDRESSES = not {"ASAN_OPTIONS", "TSAN_OPTIONS"} & os.environ.keys()


def refuse_userfaultfd():
    """From now on the system refuses it to this process and what it starts."""
    # Loads the number of a system call; the request of an ioctl. 64-bit x86.
    program = (
        (0x20, 0, 0, 0),
        (0x15, 4, 0, 323),  # userfaultfd
        (0x15, 0, 2, 16),  # ioctl
        (0x20, 0, 0, 24),
        (0x15, 1, 0, 0xAA00),  # USERFAULTFD_IOC_NEW
        (0x06, 0, 0, 0x7FFF0000),
        (0x06, 0, 0, 0x00050001),  # EPERM
    )
    packed = b"".join(struct.pack("=HBBI", *each) for each in program)
    code = ctypes.create_string_buffer(packed, len(packed))
    whole = struct.pack("@HP", len(program), ctypes.addressof(code))
    system = ctypes.CDLL(None, use_errno=True)
    # No new privileges; a filter of system calls.
    if system.prctl(38, 1, 0, 0, 0) != 0 or system.prctl(22, 2, whole, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def with_defaults(options):
    """Of a program to be started. FARGPU_TEST_USERFAULTFD=refused in its environment: it has no
    userfaultfd."""
    options.setdefault("env", clean_environment())
    if options["env"].get("FARGPU_TEST_USERFAULTFD") == "refused":
        before = options.get("preexec_fn", lambda: None)
        options["preexec_fn"] = lambda: (before(), refuse_userfaultfd())
    return options


def run(arguments, timeout=LIMIT, **options):
    """Runs to the end; output as text. Signals show as negative codes."""
    options = with_defaults(options)
    done = subprocess.run(
        [str(a) for a in arguments],
        timeout=timeout,
        capture_output=True,
        text=True,
        errors="replace",
        **options,
    )
    show_reports(done.stderr)
    return done


def wait_until(condition, what, seconds=30):
    """Polls `condition` until it gives something true, which is returned."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def waits_for_a_session(pid):
    """Of a worker: started ahead, and without a session."""
    try:
        return b"--ahead" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Certificates:
    """Made by the openssl program: ca.pem signed server.pem (for localhost, 127.0.0.1 and `more`)
    and elsewhere.pem (for another host); other.pem is another authority. Each with its .key. They
    live as long as this object."""

    def __init__(self, more=""):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-certificates-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        for name in ("ca", "other"):
            self.openssl(
                "req",
                "-x509",
                *self.new_key(name),
                "-out",
                self.file(f"{name}.pem"),
                "-days",
                "2",
                "-subj",
                f"/CN={name}",
            )
        for name, hosts in (
            ("server", f"IP:127.0.0.1,DNS:localhost{more}"),
            ("elsewhere", "DNS:gpu.example.org"),
        ):
            request, extensions = self.file(f"{name}.csr"), self.folder / f"{name}.ext"
            extensions.write_text(f"subjectAltName={hosts}\n")
            self.openssl("req", *self.new_key(name), "-out", request, "-subj", f"/CN={name}")
            self.openssl(
                "x509",
                "-req",
                "-in",
                request,
                "-CA",
                self.file("ca.pem"),
                "-CAkey",
                self.file("ca.key"),
                "-CAcreateserial",
                "-days",
                "2",
                "-extfile",
                extensions,
                "-out",
                self.file(f"{name}.pem"),
            )

    def file(self, name):
        return str(self.folder / name)

    def new_key(self, name):
        return (
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            self.file(f"{name}.key"),
        )

    @staticmethod
    def openssl(*arguments):
        subprocess.run(
            ["openssl", *map(str, arguments)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


_certificates = []


def tls_certificates():
    """Those of FARGPU_TEST_TRANSPORT=tls, or None."""
    if os.environ.get("FARGPU_TEST_TRANSPORT") != "tls":
        return None
    if not _certificates:
        _certificates.append(Certificates())
    return _certificates[0]


class Daemon:
    """A fargpud with simulated GPUs on a free loopback port, as a context manager. `arguments` go
    to it as they are. `driver`: the path of a simulated driver of another version. `through`: a
    command that starts it in its place."""

    def __init__(self, *arguments, gpus=1, environment=None, driver="sim", through=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-test-"))
        self.port_file = self.folder / "port"
        self.log = self.folder / "log"
        command = [
            *through,
            str(BUILD.fargpud),
            "--driver",
            str(driver),
            "--sim-gpus",
            str(gpus),
            "--listen",
            "127.0.0.1:0",
            "--port-file",
            str(self.port_file),
            "--worker",
            str(BUILD.worker),
            *map(str, arguments),
        ]
        self.certificates = tls_certificates()
        if self.certificates:
            command += [
                "--tls-cert",
                self.certificates.file("server.pem"),
                "--tls-key",
                self.certificates.file("server.key"),
            ]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment(**(environment or {})),
            )

    def __enter__(self):
        def listening():
            if self.process.poll() is not None:
                raise AssertionError(
                    f"fargpud ended with {self.process.returncode}:\n{self.log_text()}"
                )
            return self.port_file.exists() and self.port_file.read_text().strip()

        try:
            self.port = int(wait_until(listening, "fargpud listens").split()[0])
        except BaseException:
            self.stop()
            raise
        self.server = f"{'tls://' if self.certificates else ''}127.0.0.1:{self.port}"
        return self

    def __exit__(self, kind, *_):
        self.stop()
        if kind is not None and not issubclass(kind, unittest.SkipTest):
            sys.stderr.write("--- log of fargpud ---\n" + self.log_text()[-6000:] + "\n")
        show_reports(self.log_text())
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def run(self, *arguments, flags=(), **options):
        """Runs a program through `fargpu run` on this daemon."""
        return run(
            [BUILD.fargpu, "run", "--server", self.server, *flags, "--", *arguments], **options
        )

    def start(self, *arguments, flags=(), **options):
        """The same without waiting; the caller ends it."""
        options = with_defaults(options)
        return subprocess.Popen(
            [
                str(a)
                for a in (BUILD.fargpu, "run", "--server", self.server, *flags, "--", *arguments)
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            **options,
        )

    def workers(self):
        """Process ids of the living workers of this daemon's sessions."""
        return [pid for pid in self.children("fargpu-worker") if not waits_for_a_session(pid)]

    def worker_of(self, client):
        """Of the session of this process; None: it has none, or had one."""
        begun = rf'event=session-begin .*client="[^"]*:{client} [^"]*" worker=(\d+)'
        found = re.search(begun, self.log_text())
        return int(found[1]) if found and int(found[1]) in self.workers() else None

    def workers_ahead(self):
        """Process ids of its workers that wait for a session."""
        return [pid for pid in self.children("fargpu-worker") if waits_for_a_session(pid)]

    def children(self, program):
        """Process ids of its living children whose name begins so."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                name = (entry / "comm").read_text()
            except (OSError, IndexError, ValueError):
                continue
            if parent == self.process.pid and name.startswith(program) and is_running(entry.name):
                found.append(int(entry.name))
        return found

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        return connection


# --- frames by hand -------------------------------------------------------------------------------

HEADER = struct.Struct("<HHHHIIQiI")
MAGIC = 0x4746
REPLY, WANT_REPLY = 1, 2
HELLO, PING, BYE, STATUS, UPGRADE, JOIN = 1, 2, 3, 7, 8, 9


def capnp_encode(kind, text, schema="control"):
    """The single segment of a message of schema/SCHEMA.capnp, written in capnp's text form."""
    message = subprocess.run(
        ["capnp", "encode", str(ROOT / "schema" / f"{schema}.capnp"), kind],
        input=text.encode(),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    segments, words = struct.unpack_from("<II", message)
    assert segments == 0 and len(message) == 8 + 8 * words
    return message[8:]


def capnp_decode(kind, body, schema="control"):
    message = struct.pack("<II", 0, len(body) // 8) + body
    return subprocess.run(
        ["capnp", "decode", str(ROOT / "schema" / f"{schema}.capnp"), kind],
        input=message,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout.decode()


def data_field(text, name):
    """The bytes of a Data field in a message's text form."""
    found = re.search(name + r' = (0x"[0-9a-f ]*"|"(?:[^"\\]|\\.)*")', text)[1]
    return bytes.fromhex(found[3:-1]) if found.startswith("0x") else ast.literal_eval("b" + found)


EVERY_OPCODE = '0x"' + "ff" * 256 + '"'


def hello_body(version=1, token="", **fields):
    values = {
        "protocolVersion": version,
        "knows": EVERY_OPCODE,
        "clientVersion": '"test"',
        "cudaVersion": 13000,
        "token": f'"{token}"',
        "clientName": '"test"',
        "maxBodyBytes": 1 << 20,
        "maxBulkBytes": 1 << 26,
        **fields,
    }
    return capnp_encode("Hello", "(" + ", ".join(f"{k} = {v}" for k, v in values.items()) + ")")


def frame(
    opcode,
    body=b"",
    bulk=b"",
    flags=WANT_REPLY,
    sequence=1,
    magic=MAGIC,
    context=0,
    result=0,
    reserved=0,
    body_bytes=None,
    bulk_bytes=None,
):
    header = HEADER.pack(
        magic,
        opcode,
        flags,
        context,
        sequence,
        len(body) if body_bytes is None else body_bytes,
        len(bulk) if bulk_bytes is None else bulk_bytes,
        result,
        reserved,
    )
    return header + body + bulk


def receive_exactly(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise EOFError(f"closed after {len(data)} of {count} bytes")
        data += piece
    return data


def receive_frame(connection):
    """(header fields as a tuple, body, bulk); EOFError when the peer closed."""
    header = HEADER.unpack(receive_exactly(connection, HEADER.size))
    assert header[0] == MAGIC
    return header, receive_exactly(connection, header[5]), receive_exactly(connection, header[6])


def is_closed(connection):
    """Waits for the peer to close (True); anything it sends before is read and dropped."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def main():
    """Entry of every test file: --build-dir FOLDER, perhaps --client-build-dir,
    --worker-build-dir and --programs-dir FOLDER (class Build), then unittest's own arguments. Exit
    code 77: a build is not there."""
    global BUILD
    parser = argparse.ArgumentParser()
    parser.add_argument("--build-dir", required=True)
    parser.add_argument("--client-build-dir")
    parser.add_argument("--worker-build-dir")
    parser.add_argument("--programs-dir")
    options, rest = parser.parse_known_args()
    for folder in filter(
        None, (options.build_dir, options.client_build_dir, options.worker_build_dir)
    ):
        if not pathlib.Path(folder, "bin", "fargpu").exists():
            print(f"{folder} is not built: nothing was tested", file=sys.stderr)
            sys.exit(77)
    # Test files import this module by name; make that the same object as the one that runs.
    BUILD = Build(
        options.build_dir, options.client_build_dir, options.programs_dir, options.worker_build_dir
    )
    sys.modules["fargpu_testing"].BUILD = BUILD
    unittest.main(module="__main__", argv=[sys.argv[0], *rest], verbosity=2)
