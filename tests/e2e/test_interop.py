"""What NVIDIA's libraries ask of the driver beyond its documented functions."""

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
                "1 functions, of the module",
                "compilation cache: 801",
            ],
            done.stderr,
        )
        self.assertEqual(done.stderr, "")  # that there is no cache is not worth a line


if __name__ == "__main__":
    testing.main()
