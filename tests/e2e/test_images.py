"""Images of modules and libraries: what is sent of them, and what becomes of the server's cache."""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import stat
import struct
import sys
import tempfile
import unittest
import unittest.mock

import fargpu_testing as testing

LYING_WORKER = pathlib.Path(__file__).with_name("lying_worker.py")
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


def may_mount():
    try:
        mount = "mount -t tmpfs none /tmp"
        return testing.run(["unshare", "--mount", "sh", "-c", mount]).returncode == 0
    except OSError:
        return False


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


@testing.not_with_an_older_release("its workers share a folder")
class ImagesOfTheServer(Case):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        ptx = testing.BUILD.program("triple.ptx").read_bytes()
        padding = b"".join(b"// %s\n" % os.urandom(16).hex().encode() for _ in range(100_000))
        self.image = ptx + padding

    def daemon(self, *arguments, **options):
        return testing.Daemon("--cache-dir", self.folder.name, *arguments, **options)

    def images(self, daemon):
        """The sizes of the files that the daemon has there; they have no names."""
        self.assertEqual(os.listdir(self.folder.name), [])
        here = os.stat(self.folder.name).st_dev
        sizes = []
        for entry in pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                about = entry.stat()
                if stat.S_ISREG(about.st_mode) and (about.st_nlink, about.st_dev) == (0, here):
                    sizes.append(about.st_size)
        return sizes

    def descriptors(self, daemon):
        return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))

    def uploads(self, daemon):
        """How many have their memory from the daemon."""
        names = []
        for entry in pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                names.append(os.readlink(entry))
        return sum("fargpu-image" in name for name in names)

    def check_loads(self, daemon, sent_images, **environment):
        done, sent = self.load(daemon, self.image, **environment)
        self.assertEqual(done.stdout, "driver_fatbin: right\n", done.stderr)
        self.assertEqual(sent, [len(self.image)] * sent_images)

    def wait_until_kept(self, daemon, count=1):
        kept = [len(self.image)] * count
        testing.wait_until(lambda: self.images(daemon) == kept, "the image is kept")

    def test_sessions_of_one_tenant_share_an_image(self):
        with self.daemon() as daemon:
            self.check_loads(daemon, 1)
            self.wait_until_kept(daemon)
            self.check_loads(daemon, 0)
            self.check_loads(daemon, 0)

    @unittest.skipUnless(os.geteuid() == 0, "only root may be two users")
    def test_two_tenants_share_nothing(self):
        """On a unix socket each user is a tenant, and so is who comes with the token."""
        nobody = 65534
        with tempfile.TemporaryDirectory() as place, tempfile.NamedTemporaryFile() as file:
            os.chmod(place, 0o711)
            socket = os.path.join(place, "socket")
            file.write(self.image)
            file.flush()
            os.chmod(file.name, 0o644)
            loads = [(None, 1, 1), (None, 0, 1), (nobody, 1, 2), (nobody, 0, 2), (None, 0, 2)]
            with self.daemon("--listen", socket, "--socket-mode", "0666") as daemon:
                for user, sent_images, kept in loads:
                    program = testing.BUILD.program("driver_fatbin")
                    done = testing.run(
                        [testing.BUILD.fargpu, "run", "--server", socket, "--", program, file.name],
                        env=testing.clean_environment(FARGPU_LOG="debug"),
                        user=user,
                    )
                    self.assertEqual(done.stdout, "driver_fatbin: right\n", done.stderr)
                    self.assertEqual(len(SENT.findall(done.stderr)), sent_images, user)
                    self.wait_until_kept(daemon, kept)
                self.check_loads(daemon, 1)  # over TCP

    @unittest.skipUnless(may_mount(), "needs the right to make namespaces")
    def test_a_full_disk_fails_no_load(self):
        """In a mount namespace of its own: the disk is smaller than the image."""
        mount = f'mount -t tmpfs -o size=1m none {self.folder.name} && exec "$@"'
        through = ("unshare", "--mount", "sh", "-c", mount, "sh")
        with self.daemon(through=through) as daemon:
            for _ in range(2):
                self.check_loads(daemon, 1)
            testing.wait_until(
                lambda: "No space left on device" in daemon.log_text(), "the disk is full"
            )

    def test_what_has_no_room_is_loaded_all_the_same(self):
        with self.daemon("--image-cache", f"{len(self.image) + 8192}") as daemon:
            self.check_loads(daemon, 1)
            self.wait_until_kept(daemon)
            # A session that lives keeps its image.
            testing.wait_until(lambda: not daemon.workers(), "its session has ended")
            self.image += b"// another one\n" * 100
            self.check_loads(daemon, 1)
            self.wait_until_kept(daemon)

    def test_a_folder_that_is_not_there(self):
        """One that is named must be there."""
        done = testing.run([testing.BUILD.fargpud, "--driver", "sim", "--cache-dir", "/nowhere"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere (--cache-dir) is no folder", done.stderr)

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
                testing.wait_until(lambda: self.uploads(daemon), "the image is being stored")
                (worker,) = daemon.workers()
                os.kill(worker, signal.SIGKILL)
                testing.wait_until(lambda: not self.uploads(daemon), "nothing is left")
            finally:
                program.kill()
                program.communicate()
            self.check_loads(daemon, 1)
            self.wait_until_kept(daemon)
            self.check_loads(daemon, 0)

    def test_sessions_that_bring_one_image_at_once(self):
        with self.daemon("--max-bulk", "64K") as daemon, tempfile.NamedTemporaryFile() as file:
            file.write(self.image)
            file.flush()
            program = testing.BUILD.program("driver_fatbin")
            environment = testing.clean_environment(
                FARGPU_LINK="bandwidth=100Mbps", FARGPU_COMPRESS="none"
            )
            programs = [daemon.start(program, file.name, env=environment) for _ in range(3)]
            for one in programs:
                out, errors = one.communicate(timeout=testing.LIMIT)
                self.assertEqual(out, "driver_fatbin: right\n", errors)
            self.wait_until_kept(daemon)
            self.check_loads(daemon, 0)

    def test_a_worker_that_lies_harms_only_its_session(self):
        mark = os.path.join(self.folder.name, "..", os.path.basename(self.folder.name) + ".mark")
        self.addCleanup(lambda: os.path.exists(mark) and os.unlink(mark))
        wrapper = pathlib.Path(mark + ".sh")
        self.addCleanup(wrapper.unlink)
        words = [sys.executable, LYING_WORKER, testing.BUILD.worker, mark]
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
        wrapper.chmod(0o755)
        with (
            unittest.mock.patch.object(testing.BUILD, "worker", wrapper),
            self.daemon("--workers-ahead", "0") as daemon,
        ):
            liar = daemon.start(testing.BUILD.program("driver_fatbin"), "/nowhere")
            try:
                testing.wait_until(lambda: os.path.exists(mark), "a worker lies")
                before = self.descriptors(daemon)
                self.check_loads(daemon, 1)
                self.wait_until_kept(daemon)
                self.check_loads(daemon, 0)
                self.assertLess(self.descriptors(daemon), before + 200)
                self.assertIsNone(liar.poll(), "it goes on")
            finally:
                liar.kill()
                liar.communicate()
                for pid in daemon.children("python"):
                    os.kill(pid, signal.SIGKILL)
            testing.wait_until(lambda: not self.uploads(daemon), "nothing is left of it")


if __name__ == "__main__":
    testing.main()
