"""A message that changes is a new opcode: fingerprints, the registry's lines, and `apigen verify`
against what was committed."""

import subprocess
import unittest

from apigen import control, generate, layout, verify
from fixture import SCHEMA, Description

ONE = """# x
- fn: CUresult cuA(int *a, size_t n, CUevent e)
  since: 2000
  call: sync
  args: {a: {out: array, len: n + 1}}
"""
# Descriptions whose message means something else than ONE's, to either end.
CHANGED = {
    "type": ("size_t n", "unsigned n"),
    "element": ("int *a", "size_t *a"),
    "order": ("int *a, size_t n, CUevent e", "size_t n, int *a, CUevent e"),
    "one more": ("CUevent e", "CUevent e, int more"),
    "length": ("len: n + 1", "len: n"),
    "direction": ("{out: array", "{in: array"),
    "optional": ("len: n + 1", "len: n + 1, optional: true"),
    "kind": ("CUevent e", "CUstream e"),
    "struct": ("int *a", "CUmemLocation *a"),
    "destroyed": ("n + 1}", "n + 1}, e: {destroys: event}"),
    "who waits": ("call: sync\n  args: {a: {out", "call: async\n  args: {a: {in"),
    "meaning": ("call: sync", "call: sync\n  meaning: 2"),
}
# Changes that the other end cannot tell.
SAME = {
    "names": ("int *a, size_t n, CUevent e", "int *a, size_t count, CUevent event"),
    "needs": ("call: sync", "call: sync\n  needs: init"),
    "checks": ("call: sync", "call: sync\n  valid: {n > 0: CUDA_ERROR_INVALID_VALUE}"),
    "halves": ("call: sync", "call: sync\n  server: manual\n  why: w"),
}


class Registry(Description):
    def git(self, *arguments):
        identity = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", "-C", self.folder, *identity, *arguments], check=True)

    def commit(self):
        """The description as it is, with its contracts, is what others have."""
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def described(self, text):
        api = self.describe(text)
        (self.schema / "control.capnp").write_text("struct A { a @0 :Text; }")
        return api

    def lines(self):
        path = self.schema / "api" / "registry.yml"
        return [line for line in path.read_text().splitlines() if not line.startswith("#")]

    def changed(self, name, table):
        before, after = table[name]
        self.assertIn(before, ONE)
        text = ONE.replace(before, after)
        if name == "names":
            text = text.replace("len: n + 1", "len: count + 1")
        return text

    def fingerprint(self, text):
        api = self.describe(text)
        return layout.fingerprint(api.function("cuA"), api.types)

    def test_fingerprints(self):
        seen = {self.fingerprint(ONE): "itself"}
        for name in CHANGED:
            with self.subTest(name):
                found = self.fingerprint(self.changed(name, CHANGED))
                self.assertNotIn(found, seen, f"the same as {seen.get(found)}")
                seen[found] = name
        for name in SAME:
            with self.subTest(name):
                self.assertEqual(seen.get(self.fingerprint(self.changed(name, SAME))), "itself")

    def test_size_of_a_struct_counts(self):
        text = self.changed("struct", CHANGED)
        before = self.fingerprint(text)
        path = self.schema / "api" / "types.yml"
        types = path.read_text()
        self.assertIn("CUmemLocation: {size: 8,", types)
        path.write_text(types.replace("CUmemLocation: {size: 8,", "CUmemLocation: {size: 16,"))
        self.assertNotEqual(self.fingerprint(text), before)

    def test_a_changed_message_is_a_new_opcode(self):
        generate.write_contracts(self.described(ONE), self.schema)
        first = self.lines()
        self.assertEqual(len(first), 1)
        self.commit()
        self.assertEqual(verify.problems(self.described(ONE), self.schema), [])

        api = self.described(self.changed("type", CHANGED))
        self.assertIn("cuA has changed its message", verify.problems(api, self.schema)[0])
        generate.write_contracts(api, self.schema)
        self.assertEqual(self.lines()[:1], first, "the old line stays")
        self.assertRegex(self.lines()[1], "^cuA@2: 65 [0-9a-f]{16}$")
        self.assertEqual(api.function("cuA").opcode, 65)
        self.assertEqual(verify.problems(api, self.schema), [])
        made = generate.cpp(api, self.schema)
        self.assertIn("op_cuA = 65;", made["schema/opcodes.h"])
        self.assertEqual(made["schema/opcodes.cc"].count('"cuA",'), 2, "both have the name")
        self.assertIn('{nullptr, "cuA"', made["server/dispatch/table.cc"])
        self.assertIn('{&dispatch_cuA, "cuA"', made["server/dispatch/table.cc"])

        # Nobody has the new one yet.
        api = self.described(self.changed("length", CHANGED))
        generate.write_contracts(api, self.schema)
        self.assertEqual(len(self.lines()), 2)
        self.git("commit", "-q", "-a", "-m", "x")
        # Not even the first message gets its old number back.
        generate.write_contracts(self.described(ONE), self.schema)
        self.assertRegex(self.lines()[2], "^cuA@3: 66 ")

    def test_a_line_that_is_bent_is_found(self):
        generate.write_contracts(self.described(ONE), self.schema)
        self.commit()
        api = self.described(self.changed("type", CHANGED))
        path = self.schema / "api" / "registry.yml"
        bent = layout.fingerprint(api.function("cuA"), api.types)
        path.write_text(f"cuA: 64 {bent}\n")
        problems = "\n".join(verify.problems(api, self.schema))
        self.assertIn("a changed message needs a new opcode", problems)
        path.write_text("cuA: 64\n")
        self.assertIn("is gone now", "\n".join(verify.problems(api, self.schema)))

    def test_the_previous_release_counts_also_when_head_has_moved(self):
        generate.write_contracts(self.described(ONE), self.schema)
        self.commit()
        commit = subprocess.run(
            ["git", "-C", self.folder, "rev-parse", "HEAD"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()
        skew = self.folder / "tests" / "skew"
        skew.mkdir(parents=True)
        (skew / "previous.txt").write_text(f"0.2.0 {commit}\n")
        api = self.described(self.changed("type", CHANGED))
        bent = layout.fingerprint(api.function("cuA"), api.types)
        (self.schema / "api" / "registry.yml").write_text(f"cuA: 64 {bent}\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "unseen")
        problems = "\n".join(verify.problems(api, self.schema))
        self.assertIn("a changed message needs a new opcode", problems)

    def test_a_function_that_becomes_supported_keeps_its_number(self):
        unsupported = "# x\n- {fn: CUresult cuA(int a), since: 2000, call: unsupported, why: w}\n"
        generate.write_contracts(self.described(unsupported), self.schema)
        self.assertEqual(self.lines(), ["cuA: 64"])
        self.commit()
        api = self.described(ONE)
        self.assertIn("no fingerprint", "\n".join(verify.problems(api, self.schema)))
        generate.write_contracts(api, self.schema)
        self.assertRegex(self.lines()[0], "^cuA: 64 [0-9a-f]{16}$")
        self.assertEqual(verify.problems(api, self.schema), [])
        # and back: the number stays with the message
        generate.write_contracts(self.described(unsupported), self.schema)
        self.assertRegex(self.lines()[0], "^cuA: 64 [0-9a-f]{16}$")

    def test_control_messages_only_grow(self):
        old = "struct A {  # x @9 :Text;\n a @0 :Text; b @1 :List(B);\n struct B { c @0 :Int32; }}"
        self.assertEqual(
            control.members(old), {("A", 0): "Text", ("A", 1): "List(B)", ("A.B", 0): "Int32"}
        )
        self.assertEqual(control.problems(old, old.replace("b @1", "z @2 :Text; b @1")), [])
        self.assertIn("@0 of A.B", control.problems(old, old.replace("Int32", "Int64"))[0])
        self.assertIn("@1 of A ", control.problems(old, old.replace("b @1", "b @2"))[0])
        text = (SCHEMA / "control.capnp").read_text()
        self.assertGreater(len(control.members(text)), 100)
        self.assertEqual(control.members(text)["Hello", 1], "UInt64")
        self.assertEqual(control.members(text)["Refusal.Reason", 7], "")


if __name__ == "__main__":
    unittest.main()
