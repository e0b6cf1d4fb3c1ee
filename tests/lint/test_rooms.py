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


if __name__ == "__main__":
    unittest.main()
