"""`fargpu scan`: real programs, its exit codes, JSON."""

import json
import os
import shutil
import tempfile
import unittest

import fargpu_testing as testing


def scan(*arguments):
    return testing.run([testing.BUILD.fargpu, "scan", *arguments])


def without_privileges(command, folder):
    """The command for a user who cannot look into every folder, but into this one."""
    if os.geteuid() != 0:
        return command
    os.chmod(folder, 0o755)
    drop = "--inh-caps=-all --bounding-set=-all".split()
    return ["setpriv", *drop, *command]


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

    def test_a_folder_with_what_is_no_library(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "libc.so"), "w") as script:
                script.write("GROUP ( libc.so.6 )")
            closed = os.path.join(folder, "closed")
            os.mkdir(closed)
            done = scan(folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("no file there is an ELF file", done.stderr)
            shutil.copy(testing.BUILD.program("counted_copies"), os.path.join(folder, "a.so"))
            done = scan(folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("1 file (1 more is no ELF file), 1 of them", done.stdout)
            shutil.copy(testing.BUILD.program("reported"), os.path.join(folder, "b.so"))
            os.chmod(closed, 0)
            command = [testing.BUILD.fargpu, "scan", folder]
            done = testing.run(without_privileges(command, folder))
            os.chmod(closed, 0o700)
            self.assertIn(f"cannot read '{closed}': Permission denied", done.stderr)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)

    def test_wrong_use(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments in ((), (folder,), (__file__,), ("/nonexistent",)):
                with self.subTest(arguments):
                    done = scan(*arguments)
                    self.assertEqual(done.returncode, 2)
                    self.assertIn("fargpu: ", done.stderr)
            # The other files are scanned all the same, and what they lack comes first.
            for program, code in (("counted_copies", 2), ("reported", 1)):
                done = scan("--json", __file__, testing.BUILD.program(program))
                self.assertIn("no ELF file", done.stderr)
                self.assertEqual((done.returncode, len(json.loads(done.stdout))), (code, 1))


if __name__ == "__main__":
    testing.main()
