"""Symbols: edges of the linker that point up, and the list of those that are there."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import lint_rooms
import lint_symbols

TABLE, _ = lint_rooms.read_table("base:\nwire: base\nclient: wire\nserver: wire\n")
LOW, HIGH = "_ZN6fargpu3lowEv", "_ZN6fargpu4highEv"


class Edges(unittest.TestCase):
    def forbidden(self, known):
        return lint_symbols.forbidden(lint_symbols.link_edges(known), TABLE)

    def test_down_and_within_a_room(self):
        known = [
            ("base", [(LOW, "T")]),
            ("client", [(LOW, "U"), (HIGH, "T")]),
            ("client", [(HIGH, "U")]),
        ]
        self.assertEqual(self.forbidden(known), {})

    def test_up(self):
        known = [("base", [(HIGH, "U")]), ("client", [(HIGH, "T")])]
        self.assertEqual(self.forbidden(known), {("base", "client"): {HIGH}})

    def test_aside(self):
        known = [("server", [(HIGH, "U")]), ("client", [(HIGH, "D")])]
        self.assertEqual(self.forbidden(known), {("server", "client"): {HIGH}})

    def test_what_each_object_has_itself(self):
        weak = [("base", [(HIGH, "U")]), ("client", [(HIGH, "W")])]
        self.assertEqual(self.forbidden(weak), {})
        twice = [("client", [(HIGH, "U")]), ("client", [(HIGH, "T")]), ("server", [(HIGH, "T")])]
        self.assertEqual(self.forbidden(twice), {})

    def test_functions_of_cuda(self):
        known = [("base", [("cuInit", "U")]), ("client", [("cuInit", "T")])]
        self.assertEqual(self.forbidden(known), {})


class Listed(unittest.TestCase):
    WRONG = {("base", "client"): {HIGH}}

    def test_an_edge_that_is_listed(self):
        self.assertEqual(lint_symbols.problems(self.WRONG, [("base", "client")]), [])

    def test_an_edge_that_is_not(self):
        (line,) = lint_symbols.problems(self.WRONG, [])
        self.assertIn("base -> client", line)
        self.assertIn("fargpu::high()", line)

    def test_a_line_without_an_edge(self):
        (line,) = lint_symbols.problems({}, [("base", "client")])
        self.assertIn("take the line out", line)


class Objects(unittest.TestCase):
    """A build folder with objects of the compiler."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name).resolve()
        self.commands = []

    def compile(self, source, text, name=None):
        path = self.build / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        made = (name or source) + ".o"
        command = f"g++ -I{self.build} -o {made} -c {path}"
        subprocess.run(command.split(), cwd=self.build, check=True)
        self.commands.append({"directory": str(self.build), "command": command, "file": str(path)})
        (self.build / "compile_commands.json").write_text(json.dumps(self.commands))

    def test_rooms_and_symbols(self):
        self.compile("client/a.cc", "namespace fargpu { void high(); void low() { high(); } }")
        self.compile("server/b.cc", "namespace fargpu { void high() {} }")
        self.compile("tests/c.cc", "int main() {}")
        found = list(lint_symbols.objects(self.build))
        self.assertEqual([room for _, room in found], ["client", "server"])
        known = [(room, lint_symbols.symbols(path)) for path, room in found]
        self.assertEqual(
            lint_symbols.link_edges(known), {("client", "server"): {"_ZN6fargpu4highEv"}}
        )

    def test_several_sources_at_a_time(self):
        for name in ("client/a.cc", "client/b.cc", "server/c.cc"):
            self.compile(name, "")
        self.commands.clear()
        include = '#include "{}/{}"\n'
        own = "".join(include.format(self.build, f"client/{name}.cc") for name in "ab")
        self.compile("client/Unity/unity_0.cc", own)
        self.assertEqual([room for _, room in lint_symbols.objects(self.build)], ["client"])
        self.compile("client/Unity/unity_1.cc", own + include.format(self.build, "server/c.cc"))
        with self.assertRaisesRegex(ValueError, "several rooms: client server"):
            list(lint_symbols.objects(self.build))


if __name__ == "__main__":
    unittest.main()
