"""`fargpu scan`: real programs, its exit codes, JSON."""

import json
import os
import shutil
import tempfile
import unittest

import fargpu_testing as testing


def scan(*arguments):
    return testing.run([testing.BUILD.fargpu, "scan", *arguments])


class Scan(unittest.TestCase):
    def one(self, program):
        done = scan("--json", testing.BUILD.program(program))
        (found,) = json.loads(done.stdout)
        return done.returncode, found

    def test_what_a_program_lacks(self):
        code, found = self.one("reported")
        self.assertEqual(code, 1)
        lacks = [(lack["how"], lack["name"]) for lack in found["not_supported"]]
        self.assertEqual(lacks, [("symbol", "cuGraphicsUnregisterResource"), ("name", "cuGLInit")])
        for lack in found["not_supported"]:
            self.assertIn("graphics interoperability", lack["why"])
        self.assertFalse(found["asks_for_all"])

    def test_all_is_supported(self):
        code, found = self.one("counted_copies")
        self.assertEqual((code, found["not_supported"]), (0, []))
        self.assertGreater(found["symbols"], 5)
        done = scan(testing.BUILD.program("counted_copies"))
        self.assertIn("all is supported, as far as the files say", done.stdout)

    def test_the_runtime_library(self):
        code, found = self.one("vector_add")
        self.assertEqual((code, found["asks_for_all"], found["not_supported"]), (0, True, []))
        code, found = self.one("vector_add_shared")
        self.assertEqual((code, found["asks_for_all"]), (0, False))
        self.assertGreater(found["runtime"], 3)

    def test_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(testing.BUILD.program("reported"), os.path.join(folder, "a.so"))
            shutil.copy(testing.BUILD.program("counted_copies"), os.path.join(folder, "b.so"))
            done = scan("--json", folder)
            self.assertEqual(done.returncode, 1)
            files = [found["file"] for found in json.loads(done.stdout)]
            self.assertEqual(files, [os.path.join(folder, name) for name in ("a.so", "b.so")])
            done = scan(folder)
            self.assertIn("2 files, 2 of them use CUDA, 1 needs what is not supported", done.stdout)

    def test_wrong_use(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments in ((), (folder,), (__file__,), ("/nonexistent",)):
                with self.subTest(arguments):
                    done = scan(*arguments)
                    self.assertEqual(done.returncode, 2)
                    self.assertIn("fargpu: ", done.stderr)
            # The other files are scanned all the same.
            done = scan("--json", __file__, testing.BUILD.program("reported"))
            self.assertEqual((done.returncode, len(json.loads(done.stdout))), (2, 1))


if __name__ == "__main__":
    testing.main()
