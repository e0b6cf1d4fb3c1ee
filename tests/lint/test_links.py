"""Links: files and headings that are not there, paths that no file has any more."""

import unittest

import lint_links

PAGE = """# How a call travels

## What waits, and where

## What waits, and where

<a id="old-name"></a>See `cuMemAlloc` and [the frame](wire.md#frame).
"""
NAMES = lint_links.everything(
    [
        "docs/calls.md",
        "docs/wire.md",
        "docs/adr/0001-a.md",
        "tests/e2e/programs/fork.cu",
        "README.md",
    ]
)


class Links(unittest.TestCase):
    def problems(self, text, page="docs/calls.md"):
        pages = {"docs/calls.md": PAGE, "docs/wire.md": "## Frame\n", "README.md": ""}
        return lint_links.link_problems(page, text, pages, NAMES)

    def test_right_ones(self):
        self.assertEqual(self.problems(PAGE), [])
        for target in ("calls.md", "adr/0001-a.md", "../README.md", "adr/", "https://a.example/b"):
            self.assertEqual(self.problems(f"So [it\nis]({target})."), [])

    def test_a_file_that_is_not_there(self):
        self.assertEqual(
            self.problems("[x](adr/0002-b.md)"),
            ["docs/calls.md: the link adr/0002-b.md leads to no file of the tree"],
        )

    def test_a_link_is_relative_to_its_page(self):
        self.assertEqual(
            self.problems("[x](docs/wire.md)"),
            ["docs/calls.md: the link docs/wire.md leads to no file of the tree"],
        )
        self.assertEqual(self.problems("[x](docs/wire.md)", page="README.md"), [])

    def test_anchors(self):
        for anchor in ("what-waits-and-where", "what-waits-and-where-1", "old-name"):
            self.assertEqual(self.problems(f"[x](#{anchor})"), [])
        self.assertEqual(
            self.problems("[x](wire.md#body)"),
            ["docs/calls.md: the link wire.md#body leads to no heading of docs/wire.md"],
        )

    def test_code_is_no_link(self):
        self.assertEqual(self.problems("`a[i](x)`\n\n    [x](nowhere.md)\n"), [])


class Paths(unittest.TestCase):
    def problems(self, text):
        return lint_links.path_problems("docs/calls.md", text, NAMES)

    def test_right_ones(self):
        for path in (
            "tests/e2e",
            "tests/e2e/",
            "tests/e2e/programs/fork",
            "docs/adr/<number>-a.md",
        ):
            self.assertEqual(self.problems(f"see `{path}`"), [])

    def test_other_words_with_a_slash(self):
        for word in ("build/release", "/dev/shm", "a/b", "docs", "https://docs/x", "tests/$NAME"):
            self.assertEqual(self.problems(f"see `{word}`"), [])

    def test_what_is_gone(self):
        wrong = ["docs/calls.md: `tests/e2e/gone.py` is not in the tree"]
        self.assertEqual(self.problems("`tests/e2e/gone.py:12`"), wrong)
        self.assertEqual(self.problems("so:\n\n    python3 tests/e2e/gone.py --fast\n"), wrong)
        self.assertEqual(
            self.problems("`tests/unit/*.py`"),
            ["docs/calls.md: `tests/unit/*.py` is not in the tree"],
        )

    def test_pages_named_in_code(self):
        self.assertEqual(
            lint_links.mention_problems("a.cc", "// docs/wire.md, my/docs/x.md, docs/no.md", NAMES),
            ["a.cc: docs/no.md is not there"],
        )


if __name__ == "__main__":
    unittest.main()
