"""Older CUDA runtimes: a program of each runs through fargpu. scripts/setup fetches them."""

import unittest

import fargpu_testing as testing

FOLDER = testing.ROOT / ".deps" / "runtimes"
LIBRARIES = sorted(FOLDER.glob("*/nvidia/cuda_runtime/lib/libcudart.so.*"))
RIGHT = [
    "questions before any work: right",
    "a kernel: right",
    "a stream and a variable: right",
    "a cooperative kernel: right",
    "a graph: right",
    "memory of a pool: right",
    "pinned memory: right",
]


class Runtimes(unittest.TestCase):
    def check(self, daemon, library):
        # 11.8.89 is runtime 11080.
        major, minor, _ = library.relative_to(FOLDER).parts[0].split(".")
        done = daemon.run(
            testing.BUILD.program("old_runtime"), library, testing.BUILD.program("scale.fatbin")
        )
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(lines[0], f"runtime {1000 * int(major) + 10 * int(minor)}, 1 device(s)")
        self.assertEqual(lines[1:8], RIGHT)
        self.assertIn("fargpu simulated GPU", lines[8])

    def test_a_program_of_each(self):
        if not LIBRARIES:
            self.skipTest("no older CUDA runtimes; scripts/setup fetches them")
        with testing.Daemon() as daemon:
            for library in LIBRARIES:
                with self.subTest(library=str(library.relative_to(FOLDER))):
                    self.check(daemon, library)

    def test_on_a_driver_of_its_time(self):
        library = FOLDER / "12.0.146" / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.12"
        if not library.exists():
            self.skipTest("no runtime of CUDA 12.0; scripts/setup fetches it")
        driver = testing.BUILD.folder / "lib" / "libfargpu-sim-12.2.so"
        with testing.Daemon(driver=driver) as daemon:
            self.check(daemon, library)


if __name__ == "__main__":
    testing.main()
