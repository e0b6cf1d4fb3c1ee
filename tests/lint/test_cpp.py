"""What scripts/lint_cpp.py looks at, and what it remembers, in a small tree of its own."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import lint_cpp


@unittest.skipUnless(shutil.which("clang++"), "there is no clang++")
class Cpp(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-lint-")).resolve()
        self.addCleanup(shutil.rmtree, self.root)
        self.write(".clang-tidy", "Checks: '-*'\n")
        self.write("room/number.h", "inline int number() { return 1; }\n")
        self.write("room/uses.cc", '#include "room/number.h"\nint uses() { return number(); }\n')
        self.write("room/alone.cc", "int alone() { return 2; }\n")
        self.write(
            "build/clang/compile_commands.json",
            json.dumps([self.entry("room/uses.cc"), self.entry("room/alone.cc")]),
        )
        self.write(".gitignore", "build\n")
        self.git("init", "-q")
        self.commit()
        patch = mock.patch.object(lint_cpp, "ROOT", self.root)
        patch.start()
        self.addCleanup(patch.stop)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def entry(self, name):
        file = str(self.root / name)
        command = f"clang++ -Wall -I{self.root} -o x.o -c {file}"
        return {"directory": str(self.root), "file": file, "command": command}

    def git(self, *words):
        identity = ("-c", "user.name=Test", "-c", "user.email=test@localhost")
        subprocess.run(["git", "-C", self.root, *identity, *words], check=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "as it is")

    def look(self, *options, cache="cache"):
        """Exit code, and how many files were looked at."""
        arguments = ["--build-dir", str(self.root / "build/clang"), "--units"]
        arguments += [str(self.root / "build/units"), "--cache", str(self.root / "build" / cache)]
        printed = []
        with (
            mock.patch.object(sys, "argv", ["lint_cpp.py", *arguments, *options]),
            mock.patch("builtins.print", lambda *words, **_: printed.append(" ".join(words))),
        ):
            code = lint_cpp.main()
        return code, int(printed[-1].split()[0])

    def test_what_was_in_order_is_not_looked_at_again(self):
        self.assertEqual(self.look(), (0, 2))
        self.assertEqual(self.look(), (0, 0))

    def test_a_header_that_changes_makes_its_dependants_new(self):
        self.look()
        self.write("room/number.h", "inline int number() { return 3; }\n")
        self.assertEqual(self.look(), (0, 1))
        # What was there before is still known.
        self.git("checkout", "-q", "room/number.h")
        self.assertEqual(self.look(), (0, 0))

    def test_a_finding_is_not_remembered(self):
        self.write("room/alone.cc", "int alone() { int unused; return 2; }\n")
        self.assertEqual(self.look(), (1, 2))
        self.assertEqual(self.look()[0], 1)

    def test_with_a_base_dependants_of_changed_headers_are_looked_at(self):
        self.write("room/number.h", "inline int number() { return 3; }\n")
        self.assertEqual(self.look("--base", "HEAD"), (0, 1))

    def test_an_empty_cache_believes_what_has_landed(self):
        self.write("room/alone.cc", "int alone() { return 4; }\n")
        self.commit()
        landed = ("--landed", "HEAD~1")
        self.assertEqual(self.look(*landed), (0, 1))
        self.assertEqual(self.look(*landed), (0, 0))
        # Nobody looked here at the other file: a run without the option does.
        self.assertEqual(self.look(), (0, 1))

    @unittest.skipUnless(shutil.which("clang-tidy"), "there is no clang-tidy")
    def test_beside_what_landed_clang_tidy_looks_at_changed_code_only(self):
        null = "char* {}() {{ return 0; }}\n"  # what clang-tidy objects to
        self.write(".clang-tidy", "Checks: '-*,modernize-use-nullptr'\nHeaderFilterRegex: '.*'\n")
        self.write("room/uses.cc", '#include "room/number.h"\n' + null.format("uses"))
        self.commit()
        landed = ("--tidy", "--landed", "HEAD~1")
        # Dependants are compiled, and no more.
        self.write("room/number.h", "// A number.\ninline int number() { return 1; }\n")
        self.commit()
        self.assertEqual(self.look(*landed, cache="comment"), (0, 1))
        # A header is looked at with one file that includes it.
        self.write("room/number.h", "inline " + null.format("number"))
        self.commit()
        self.assertEqual(self.look(*landed, cache="header"), (1, 1))
        # So is a file whose code has changed, but not one that has moved.
        self.write("room/number.h", "inline int number() { return 1; }\n")
        self.commit()
        self.git("mv", "room/number.h", "room/count.h")
        self.write("room/uses.cc", '#include "room/count.h"\n' + null.format("uses"))
        self.commit()
        self.assertEqual(self.look(*landed, cache="moved"), (0, 1))
        self.write("room/uses.cc", '#include "room/count.h"\n' + null.format("uses_it"))
        self.commit()
        self.assertEqual(self.look(*landed, cache="code"), (1, 1))

    def test_a_cache_that_is_not_empty_believes_nothing_new(self):
        self.write("room/uses.cc", "int uses() { return 5; }\n")
        self.look("--base", "HEAD")
        self.assertEqual(self.look("--landed", "HEAD"), (0, 1))

    def test_another_configuration_makes_all_files_new(self):
        self.write(".clang-tidy", "Checks: '-*,bugprone-*'\n")
        self.commit()
        self.assertEqual(self.look("--landed", "HEAD~1"), (0, 2))


if __name__ == "__main__":
    unittest.main()
