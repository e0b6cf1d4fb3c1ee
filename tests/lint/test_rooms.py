"""Rooms: arrows that point up, rooms that nobody declared, sources of another folder."""

import unittest

import lint_rooms

TABLE = """# from the bottom up
base:
wire: base  # frames
client: wire
server: wire
"""


class Table(unittest.TestCase):
    def test_rooms_that_are_reached(self):
        table, wrong = lint_rooms.read_table(TABLE)
        self.assertEqual(wrong, [])
        self.assertEqual(lint_rooms.reach(table)["client"], {"client", "wire", "base"})

    def test_a_room_names_only_rooms_before_it(self):
        _, wrong = lint_rooms.read_table("base: wire\nwire: base\n")
        self.assertEqual(wrong, ["line 1: base names wire, which is not listed before it"])

    def test_a_room_stands_there_once(self):
        _, wrong = lint_rooms.read_table("base:\nbase:\n")
        self.assertEqual(wrong, ["line 2: base stands there twice"])


class Includes(unittest.TestCase):
    def setUp(self):
        self.table, _ = lint_rooms.read_table(TABLE)
        self.files = {
            "base/log.h": "#pragma once\n#include <string>\n",
            "wire/frame.h": '#include "base/log.h"\n',
            "client/call.cc": '#include "client/call.h"\n#include "base/log.h"\n',
            "server/call.cc": '#include "wire/frame.h"\n',
        }

    def problems(self, **more):
        return lint_rooms.include_problems(self.table, self.files | more)

    def test_down_and_within_a_room(self):
        self.assertEqual(self.problems(), [])

    def test_up(self):
        self.files["base/log.cc"] = '#include "base/log.h"\n  #  include "wire/frame.h"\n'
        self.assertEqual(
            self.problems(), ['base/log.cc: includes "wire/frame.h": base may not include wire']
        )

    def test_client_and_server(self):
        self.files["client/bad.cc"] = '#include "server/call.h"\n'
        self.assertEqual(
            self.problems(),
            ['client/bad.cc: includes "server/call.h": client may not include server'],
        )

    def test_a_room_that_nobody_declared(self):
        self.files["client/cache/cache.cc"] = '#include "base/log.h"\n'
        self.assertEqual(self.problems(), ["client/cache: not in the table of rooms"])

    def test_a_file_in_no_room(self):
        self.files["client/other.cc"] = '#include "tests/other.h"\n'
        self.assertEqual(
            self.problems(), ['client/other.cc: includes "tests/other.h", which is in no room']
        )

    def test_a_declared_room_without_code(self):
        del self.files["server/call.cc"]
        self.assertEqual(self.problems(), ["server: in the table, but without code"])

    def test_a_template_is_of_the_room_of_what_is_made_from_it(self):
        self.table["generated/base"] = ["base"]
        self.table["generated/client"] = ["client", "generated/base"]
        lines = '#include "generated/base/{{ name }}.h"\n#include "client/call.h"\n'
        self.files["client/templates/calls.cc.j2"] = lines
        self.files["base/tool/templates/names.cc.j2"] = '#include "base/log.h"\n'
        self.table["generated/client/cache"] = ["generated/base"]
        self.files["client/cache/templates/names.cc.j2"] = '#include "generated/base/names.h"\n'
        self.assertEqual(self.problems(), [])
        self.files["base/tool/templates/calls.cc.j2"] = lines
        self.assertEqual(
            self.problems(),
            [
                'base/tool/templates/calls.cc.j2: includes "client/call.h": '
                "generated/base may not include client"
            ],
        )

    def test_graph_leaves_out_what_follows(self):
        self.files["wire/frame.cc"] = '#include "wire/frame.h"\n'
        self.files["server/more.cc"] = '#include "base/log.h"\n'
        self.assertEqual(
            lint_rooms.graph(self.table, self.files),
            ["base", "wire -> base", "client -> base", "server -> wire"],
        )

    def test_the_page_tells_the_graph(self):
        lines = ["base", "wire -> base"]
        self.assertTrue(lint_rooms.told(lines, "So:\n\n    base\n    wire -> base\n\nAnd"))
        self.assertFalse(lint_rooms.told(lines, "So:\n\n    base\n    wire\n"))


class Sources(unittest.TestCase):
    def problems(self, text):
        lists = {"CMakeLists.txt": "", "a/CMakeLists.txt": text, "a/b/CMakeLists.txt": ""}
        return lint_rooms.source_problems(lists)

    def test_own_sources(self):
        own = 'x.cc "${CMAKE_CURRENT_SOURCE_DIR}/y.cc" programs/z.cc "${made}/m.cc"  # ../no.cc'
        self.assertEqual(self.problems(f"add_library(a {own}\n)\n"), [])

    def test_sources_of_other_folders(self):
        for source in ("../x.cc", "b/x.cc", "${CMAKE_SOURCE_DIR}/c/x.cc", "programs/../../x.cc"):
            self.assertEqual(
                self.problems(f'add_library(a y.cc "{source}")'),
                [f"a/CMakeLists.txt: lists {source}, which lies in another folder"],
            )


class Held(unittest.TestCase):
    """What may only go down."""

    def test_the_longest_chain(self):
        table, _ = lint_rooms.read_table(
            "base:\nclient/call: base\nclient/memory: client/call\nclient/side: client/call\n"
            "client/manual: client/memory client/side\nclient/manual/graph: client/manual\n"
        )
        self.assertEqual(
            lint_rooms.longest_chain(table, "client", "client/manual"),
            ["client/call", "client/memory", "client/manual", "client/manual/graph"],
        )

    def handed_in(self, header, above):
        files = {"client/hostmem/pages.h": header, "client/transfer/pages.cc": above}
        return lint_rooms.handed_in(files)

    def test_an_interface_that_a_room_above_implements(self):
        header = (
            "class Pages {\n public:\n  class Wire {\n    virtual int push(int) = 0;\n  };\n};\n"
        )
        name = ("client/hostmem/pages.h", "Pages::Wire")
        self.assertEqual(
            self.handed_in(header, "class Sender final : public Pages::Wire {};"), {name: 1}
        )
        self.assertEqual(self.handed_in(header, "Pages pages;"), {})

    def test_functions_that_a_room_above_hands_in(self):
        header = (
            "struct Hooks {\n  std::function<void(int)> wake;\n"
            "  void (*look)(int, int) = nullptr;\n  int count = 0;\n  void plain(int);\n};\n"
        )
        self.assertEqual(
            self.handed_in(header, "Hooks hooks;"), {("client/hostmem/pages.h", "Hooks"): 2}
        )
        self.assertEqual(self.handed_in(header, ""), {})

    def test_the_list(self):
        figures, handed, links = lint_rooms.held(
            "# a comment\narrows 3  # here too\nhanded-in a.h A::B\nlink a -> b\n"
        )
        self.assertEqual((figures, handed, links), ({"arrows": 3}, [("a.h", "A::B")], [("a", "b")]))
        with self.assertRaises(ValueError):
            lint_rooms.held("link a b\n")

    def test_figures_go_down_only(self):
        def problems(**now):
            return lint_rooms.held_problems({"arrows": 3}, [("a.h", "A")], now, [("a.h", "A")])

        self.assertEqual(problems(arrows=3), [])
        self.assertIn("may not go up", problems(arrows=4)[0])
        self.assertIn("write that", problems(arrows=2)[0])

    def test_what_is_handed_in_is_listed(self):
        def problems(found):
            return lint_rooms.held_problems({}, [("a.h", "A")], {}, found)

        self.assertEqual(problems([("a.h", "A")]), [])
        self.assertIn("handed in from above", problems([("a.h", "A"), ("b.h", "B")])[0])
        self.assertIn("take the line out", problems([])[0])


if __name__ == "__main__":
    unittest.main()
