"""The tables of docs/results.md: the newest figures of each row, and data that is wrong."""

import pathlib
import shutil
import tempfile
import unittest

import results_page

OLD, NEW = "2026-01-02-first", "2026-03-04-second"
TABLES = {
    "calls": {"first": "us", "columns": ["native", "shm"], "rows": ["launch", "wait"]},
}
TEXT = """before
<!-- table calls -->
| old |
<!-- end -->
behind
"""
FIRST = """
runs:
  loops: {machine: one H100, command: bench/calls}
figures:
  calls:
    launch: {run: loops, native: 3.00, shm: 0.60}
    wait: {run: loops, native: 8.0, shm: 12.0}
"""
SECOND = """
runs:
  again: {anchor: calls}
figures:
  calls:
    launch: {run: again, native: 2.00, shm: 0.50}
"""


class Results(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-results-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, data):
        (self.folder / f"{name}.md").touch()
        (self.folder / f"{name}.yml").write_text(data)

    def page(self, tables=None, text=TEXT):
        return results_page.page(text, tables or TABLES, results_page.newest_figures(self.folder))

    def is_wrong(self, word, **arguments):
        with self.assertRaises(results_page.WrongData) as caught:
            self.page(**arguments)
        self.assertIn(word, str(caught.exception))

    def test_the_newest_figures_of_each_row(self):
        self.write(OLD, FIRST)
        self.write(NEW, SECOND)
        page = self.page()
        self.assertEqual(self.page(text=page), page)
        self.assertEqual(
            page,
            f"""before
<!-- table calls -->

| us | native | shm | run |
|---|---|---|---|
| launch | 2.00 | 0.50 | 1 |
| wait | 8.0 | 12.0 | 2 |

Runs: 1 [2026-03-04](measurements/{NEW}.md#calls); 2
[2026-01-02](measurements/{OLD}.md), one H100, `bench/calls`.

<!-- end -->
behind
""",
        )

    def test_one_run_needs_no_column(self):
        self.write(OLD, FIRST)
        page = self.page()
        self.assertIn("| launch | 3.00 | 0.60 |\n", page)
        self.assertIn(f"Run: [2026-01-02](measurements/{OLD}.md), one H100, `bench/calls`.", page)

    def test_ratios_of_numbers(self):
        self.write(OLD, FIRST.replace("12.0", "12 to 14"))
        page = self.page({"calls": TABLES["calls"] | {"ratio_to": "native"}})
        self.assertIn("| launch | 3.00 | 0.60 (0.20) |\n", page)
        self.assertIn("| wait | 8.0 | 12 to 14 |\n", page)

    def test_a_figure_that_is_missing(self):
        self.write(OLD, FIRST.replace(", shm: 0.60", ""))
        self.assertIn("| launch | 3.00 | |\n", self.page())
        self.assertIn(
            "| launch | 3.00 | |\n", self.page({"calls": TABLES["calls"] | {"ratio_to": "native"}})
        )

    def test_wrong_data(self):
        for data, word in (
            (FIRST.replace("wait:", "waits:"), "waits"),
            (FIRST.replace("shm: 12.0", "shn: 12.0"), "shn"),
            (FIRST.replace("run: loops", "run: loop"), "run"),
            (FIRST.replace("wait:", "launch:"), "launch stands twice"),
            (FIRST[: FIRST.index("    wait")], "no figures of wait"),
            (FIRST.replace("  calls:", "  copies:"), "copies"),
            ("runs: [", OLD),
        ):
            with self.subTest(word):
                self.write(OLD, data)
                self.is_wrong(word)

    def test_wrong_tables(self):
        self.write(OLD, FIRST)
        rows = ["launch", "wait", "launch"]
        self.is_wrong("twice", tables={"calls": TABLES["calls"] | {"rows": rows}})
        self.is_wrong("copies", tables=TABLES | {"copies": TABLES["calls"]})
        (self.folder / f"{OLD}.md").unlink()
        self.is_wrong("beside no page")

    def test_a_page_that_is_not_linked(self):
        self.write(OLD, FIRST)
        self.assertEqual(results_page.not_linked(TEXT, self.folder), [f"{OLD}.md"])
        self.assertEqual(results_page.not_linked(self.page(), self.folder), [])


if __name__ == "__main__":
    unittest.main()
