"""A kind of object without a rule does not compile. Needs a C++ compiler: --compiler."""

import argparse
import subprocess
import sys
import unittest

from fixture import ROOT, Description

COMPILER = "c++"
KINDS = "common/rpc/handle_kind.h"


class Kinds(Description):
    def compiles(self, kinds):
        """What the compiler says of the rules with this text of handle_kind.h."""
        for path, text in {
            KINDS: kinds,
            "generated/rpc/handle_rules.h": self.cpp("# x\n[]\n")["rpc/handle_rules.h"],
            "rules.cc": '#include "generated/rpc/handle_rules.h"\n',
        }.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
        return subprocess.run(
            [COMPILER, "-std=c++20", "-fsyntax-only", f"-I{self.folder}", self.folder / "rules.cc"],
            capture_output=True,
            text=True,
            check=False,
        )

    def test_a_kind_without_a_rule_does_not_compile(self):
        kinds = (ROOT / KINDS).read_text()
        done = self.compiles(kinds)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.compiles(kinds.replace("  kEvent = 7,\n", "  kEvent = 7,\n  kNews = 31,\n"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("kNews", done.stderr)

    def test_a_kind_of_another_number_does_not_compile(self):
        kinds = (ROOT / KINDS).read_text()
        done = self.compiles(kinds.replace("kEvent = 7,", "kEvent = 30,"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("kEvent", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", default=COMPILER)
    options, rest = parser.parse_known_args()
    COMPILER = options.compiler
    unittest.main(argv=[sys.argv[0], *rest])
