"""schema/api/nvml: every symbol once, with types that schema/nvml has, and nothing left unsaid."""

import re
import unittest
from pathlib import Path

from apigen.loader import load_chapter, load_yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "schema/api/nvml"
CALLS = {
    "sync": set(),
    "local": {"why"},
    "manual": {"why"},
    "denied": set(),
    "unsupported": {"why"},
}
KEYS = {"fn", "call", "why", "cache", "via", "client", "server", "args"}
SHAPES = {"value", "struct", "cstr", "array"}
PLAIN = {"void", "char", "int", "unsigned int", "unsigned long", "unsigned long long"}


class Function:
    def __init__(self, entry):
        self.entry, self.where = entry, entry.where
        head, inside = re.fullmatch(r"(.*?nvml\w+)\((.*)\)", entry["fn"]).groups()
        self.result, self.name = re.fullmatch(r"(.*?[ *])(nvml\w+)", head).groups()
        pieces = [] if inside == "void" else inside.split(", ")
        self.parameters = dict(reversed(self.parameter(p)) for p in pieces)
        self.args = entry.get("args") or {}

    @staticmethod
    def parameter(text):
        ctype, name = re.fullmatch(r"(.*[ *])(\w+)", text).groups()
        return re.sub(r" ?(\*+)$", r"\1", ctype.strip()), name


def base(ctype):
    return ctype.rstrip("*").removeprefix("const ").strip()


class Descriptions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        entries = [
            entry
            for path in sorted(FOLDER.glob("*.yml"))
            if path.stem != "types"
            for entry in load_chapter(path, ROOT)[1]
        ]
        cls.functions = [Function(e) for e in entries]
        cls.types = load_yaml(FOLDER / "types.yml", ROOT)
        headers = "".join(p.read_text() for p in sorted((ROOT / "schema/nvml").glob("*.h")))
        cls.headers = re.sub(r"\\\n\s*", "", headers)
        cls.versions = set(re.findall(r"#define (\w+) NVML_STRUCT_VERSION\(\w+, \d\)", cls.headers))

    def wired(self):
        return [f for f in self.functions if f.entry["call"] == "sync" or f.args]

    def test_every_symbol_once(self):
        symbols = (FOLDER / "symbols.txt").read_text().split()
        self.assertEqual(len(symbols), 404)
        self.assertEqual(sorted(f.name for f in self.functions), sorted(symbols))

    def test_keys_and_reasons(self):
        names = {f.name for f in self.functions}
        for f in self.functions:
            with self.subTest(f.where):
                self.assertLessEqual(set(f.entry), KEYS)
                self.assertIn(f.entry["call"], CALLS)
                self.assertLessEqual(CALLS[f.entry["call"]], set(f.entry))
                if "via" in f.entry:
                    self.assertEqual(f.entry["call"], "local")
                    self.assertIn(f.entry["via"], names)
                if "server" in f.entry:
                    self.assertIn(f.entry["call"], ("sync", "manual"))
                    self.assertEqual(f.entry["server"], "manual")
                if "cache" in f.entry:
                    self.assertIn(f.entry["call"], ("sync", "manual"))

    def test_every_type_is_declared(self):
        declared = set(re.findall(r"(\w+_t);", self.headers)) | PLAIN
        for f in self.functions:
            for ctype in f.parameters.values():
                with self.subTest(f.where):
                    self.assertIn(base(ctype), declared)

    def test_setters_are_denied(self):
        changes = re.compile(r"nvml\w*?(Set|Clear|Reset|Destroy|Remove|Freeze|Modify)(?=[A-Z])")
        harmless = re.compile(r"EventSet|CpuAffinity|\bnvmlDeviceGet|TopologyGpuSet|ResetStatus")
        for f in self.functions:
            if changes.match(f.name) and not harmless.search(f.name):
                with self.subTest(f.where):
                    self.assertEqual(f.entry["call"], "denied")

    def test_arguments(self):
        known = {
            "value": set(self.types["scalars"]) | set(self.types["enums"]),
            "struct": set(self.types["structs"]),
            "cstr": {"char"},
        }
        # Devices travel as their places.
        known["array"] = known["value"] | known["struct"] | {"nvmlDevice_t"}
        for f in self.wired():
            with self.subTest(f.where):
                self.assertLessEqual(set(f.args), set(f.parameters))
                for name, ctype in f.parameters.items():
                    say = dict(f.args.get(name) or {})
                    if not say:
                        self.assertNotIn("*", ctype, f"nothing is said about {name}")
                        self.assertIn(ctype, known["value"] | {"nvmlDevice_t"})
                        continue
                    self.assertEqual(ctype.count("*"), 1)
                    direction = next(d for d in ("in", "out", "inout") if d in say)
                    shape = say.pop(direction)
                    self.assertIn(shape, SHAPES)
                    self.assertIn(base(ctype), known[shape])
                    versions = say.pop("versions", [])
                    self.assertEqual(bool(versions), (direction, shape) == ("inout", "struct"))
                    for version in versions:
                        self.assertIn(version, known["struct"])
                        self.assertIn(version.removesuffix("_t"), self.versions)
                    self.assertEqual("len" in say, shape in ("cstr", "array"))
                    if count := say.get("count"):
                        self.assertEqual(dict(f.args[count]), {"inout": "value"})
                    self.assertLessEqual(set(say), {"len", "count", "optional"})

    def test_what_travels_holds_no_pointer(self):
        for name in self.types["structs"]:
            text = re.search(rf"typedef struct {{\n([^}}]*?)\n}} {name};", self.headers)
            if text:
                with self.subTest(name):
                    self.assertNotRegex(text[1], r"\*|nvmlDevice_t|nvmlEventSet_t")


if __name__ == "__main__":
    unittest.main()
