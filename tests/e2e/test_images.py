"""Images of modules and libraries: what is sent of them, and what becomes of the server's cache."""

import os
import pathlib
import re
import signal
import struct
import tempfile
import unittest

import fargpu_testing as testing

PTX, CUBIN = 1, 2
CODE_BYTES = 100_000
SENT = re.compile(r"image ([0-9a-f]{64}) of (\d+) bytes sent as (\d+)")


def entry(kind, arch, contents):
    """An entry of a fat binary, as nvcc writes it without compression."""
    contents += bytes(-len(contents) % 8)
    header = bytearray(64)
    struct.pack_into("<HHIQ", header, 0, kind, 0x101, len(header), len(contents))
    struct.pack_into("<I", header, 28, arch)
    struct.pack_into("<Q", header, 40, 0x11)
    return bytes(header) + contents


def fat_binary(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def code(arch):
    """No machine code: the simulated GPU takes the PTX beside it."""
    return entry(CUBIN, arch, os.urandom(CODE_BYTES))


class Case(unittest.TestCase):
    def load(self, daemon, image, **environment):
        """A program that takes the kernel `triple` from this image, and what was sent for it: the
        bytes of each image."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(image)
            file.flush()
            done = daemon.run(
                testing.BUILD.program("driver_fatbin"),
                file.name,
                env=testing.clean_environment(FARGPU_LOG="debug", **environment),
            )
        return done, [int(size) for _, size, _ in SENT.findall(done.stderr)]


@testing.not_with_an_older_release("it sends whole images")
class UsableParts(Case):
    """Of a fat binary for many GPUs that part is sent which the server's can use."""

    def setUp(self):
        self.triple = entry(PTX, 75, testing.BUILD.program("triple.ptx").read_bytes() + b"\0")

    def test_what_the_gpu_cannot_use_stays(self):
        image = fat_binary(code(75), code(80), code(90), code(100), self.triple)
        part = 16 + 64 + CODE_BYTES + len(self.triple)
        with testing.Daemon() as daemon:
            done, sent = self.load(daemon, image)
            self.assertEqual(done.stdout, "driver_fatbin: right\n", done.stderr)
            self.assertEqual(sent, [part])
            done, sent = self.load(daemon, image)
            self.assertEqual(done.stdout, "driver_fatbin: right\n", done.stderr)
            self.assertEqual(sent, [], "the server has the part")

    def test_of_all_gpus_of_the_session(self):
        """Also of those that the program does not see: the server has contexts on them."""
        image = fat_binary(code(75), code(80), code(90), self.triple)
        part = 16 + 2 * (64 + CODE_BYTES) + len(self.triple)
        capabilities = ("--sim-compute-capability", "8.0,9.0")
        for visible in ("0,1", "1"):
            with self.subTest(visible), testing.Daemon(*capabilities, gpus=2) as daemon:
                done, sent = self.load(daemon, image, FARGPU_GPUS="2", CUDA_VISIBLE_DEVICES=visible)
                self.assertEqual(done.stdout, "driver_fatbin: right\n", done.stderr)
                self.assertEqual(sent, [part])

    def test_of_a_gpu_of_a_later_minor_version(self):
        image = fat_binary(code(75), code(80), code(90), self.triple)
        with testing.Daemon(environment={"FARGPU_SIM_COMPUTE_CAPABILITY": "8.6"}) as daemon:
            done, sent = self.load(daemon, image)
        self.assertEqual(done.stdout, "driver_fatbin: right\n", done.stderr)
        self.assertEqual(sent, [16 + 64 + CODE_BYTES + len(self.triple)])

    def test_the_whole_image_where_a_gpu_has_no_machine_code_in_it(self):
        image = fat_binary(code(75), code(80), self.triple)
        with testing.Daemon() as daemon:
            done, sent = self.load(daemon, image)
        self.assertEqual(done.stdout, "driver_fatbin: right\n", done.stderr)
        self.assertEqual(sent, [len(image)])

    def test_what_fails_is_tried_with_the_whole_image(self):
        """The simulated GPU finds no PTX in the part, nor in the whole."""
        image = fat_binary(code(75), code(80), code(90), entry(PTX, 100, b"of another GPU\0"))
        with testing.Daemon() as daemon:
            done, sent = self.load(daemon, image)
        self.assertEqual(done.returncode, 1)
        self.assertIn("CUDA_ERROR_NO_BINARY_FOR_GPU", done.stderr)
        self.assertEqual(sent, [16 + 64 + CODE_BYTES, len(image)])


class CacheOfTheServer(Case):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        ptx = testing.BUILD.program("triple.ptx").read_bytes()
        padding = b"".join(b"// %s\n" % os.urandom(16).hex().encode() for _ in range(100_000))
        self.image = ptx + padding

    def daemon(self, *arguments):
        return testing.Daemon("--runtime-dir", self.folder.name, *arguments)

    def files(self):
        return {path.name: path for path in pathlib.Path(self.folder.name).glob("*/images/*")}

    def check_loads(self, daemon, sent_images):
        done, sent = self.load(daemon, self.image)
        self.assertEqual(done.stdout, "driver_fatbin: right\n", done.stderr)
        self.assertEqual(sent, [len(self.image)] * sent_images)

    def test_a_worker_killed_while_it_stores_leaves_nothing(self):
        # In many pieces, for seconds.
        with self.daemon("--max-bulk", "64K") as daemon, tempfile.NamedTemporaryFile() as file:
            file.write(self.image)
            file.flush()
            program = daemon.start(
                testing.BUILD.program("driver_fatbin"),
                file.name,
                env=testing.clean_environment(
                    FARGPU_LINK="bandwidth=4Mbps", FARGPU_COMPRESS="none"
                ),
            )
            try:
                testing.wait_until(
                    lambda: [name for name in self.files() if name.startswith("upload-")],
                    "the image is being stored",
                )
                (worker,) = daemon.workers()
                os.kill(worker, signal.SIGKILL)
                testing.wait_until(lambda: not self.files(), "nothing is left of it")
            finally:
                program.kill()
                program.communicate()
            self.check_loads(daemon, 1)
            self.check_loads(daemon, 0)

    def test_sessions_that_store_one_image_at_once(self):
        with self.daemon("--max-bulk", "64K") as daemon, tempfile.NamedTemporaryFile() as file:
            file.write(self.image)
            file.flush()
            program = testing.BUILD.program("driver_fatbin")
            environment = testing.clean_environment(
                FARGPU_LINK="bandwidth=100Mbps", FARGPU_COMPRESS="none"
            )
            programs = [daemon.start(program, file.name, env=environment) for _ in range(3)]
            testing.wait_until(
                lambda: sum(name.startswith("upload-") for name in self.files()) > 1,
                "more than one stores the image",
            )
            for one in programs:
                out, errors = one.communicate(timeout=testing.LIMIT)
                self.assertEqual(out, "driver_fatbin: right\n", errors)
            self.assertEqual([len(name) for name in self.files()], [64], "one image, by its hash")
            self.check_loads(daemon, 0)

    def test_an_image_that_was_written_to_is_not_loaded(self):
        def cut(path):
            path.chmod(0o600)
            os.truncate(path, 1000)
            path.chmod(0o400)

        def change(path):
            path.chmod(0o600)
            with path.open("r+b") as file:
                file.seek(len(self.image) // 2)
                file.write(b"?")
            path.chmod(0o400)

        with self.daemon() as daemon:
            self.check_loads(daemon, 1)
            for damage in (cut, change):
                with self.subTest(damage.__name__):
                    (path,) = self.files().values()
                    damage(path)
                    self.check_loads(daemon, 1)
                    self.check_loads(daemon, 0)


if __name__ == "__main__":
    testing.main()
