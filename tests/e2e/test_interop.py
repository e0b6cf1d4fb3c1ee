"""What NVIDIA's libraries ask of the driver beyond its documented functions."""

import json
import sys
import unittest

import fargpu_testing as testing


class ExportTables(unittest.TestCase):
    def test_functions_of_a_module_and_no_compilation_cache(self):
        with testing.Daemon() as daemon:
            done = daemon.run(
                testing.BUILD.program("export_tables"), testing.BUILD.program("triple.ptx")
            )
        self.assertEqual(
            done.stdout.splitlines(),
            [
                "function enumeration: 99 words",
                "function triple",
                "1 functions, 1 told of",
                "compilation cache: 801",
            ],
            done.stderr,
        )
        self.assertEqual(done.stderr, "")  # that there is no cache is not worth a line

    def check_library(self, name, *daemon_arguments):
        """A program of tests/apps, which checks itself."""
        if not (testing.BUILD.programs / name).exists():
            self.skipTest("the toolkit that this was built with lacks the library")
        with testing.Daemon(*daemon_arguments) as daemon:
            done = daemon.run(testing.BUILD.program(name))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[-1])["values"]

    def test_transforms_by_cufft(self):
        self.assertEqual(len(self.check_library("cufft_transforms")), 2)

    def test_a_sum_by_nccl(self):
        # NCCL has PTX for no older one.
        (total,) = self.check_library("nccl_all_reduce", "--sim-compute-capability", "12.0")
        self.assertGreater(total, 0)

    def test_video_codecs_cannot_be_loaded(self):
        """NVIDIA's library on the client machine waits for a GPU there. Here it is a file of that
        name, which ends the search for others."""
        script = "import ctypes; ctypes.CDLL('libnvcuvid.so.1')"
        with testing.Daemon() as daemon:
            done = daemon.run(sys.executable, "-c", script)
        self.assertEqual(done.returncode, 1)
        self.assertIn("symbol: fargpu_does_not_forward_video_codecs", done.stderr)


if __name__ == "__main__":
    testing.main()
