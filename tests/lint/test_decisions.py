"""Decisions: heads with date and status, statuses that agree, the table of all pages."""

import unittest

import lint_decisions

OLD = """# 0001 Frames have headers

- Date: 2026-11-21
- Status: superseded by [0002](0002-b.md)

Context.
"""
NEW = """# 0002 Frames have short headers

- Date: 2026-11-22
- Status: in force, amended by
  [0003](0003-c.md)
- Supersedes: [0001](0001-a.md)

Context.
"""
LAST = """# 0003 Some frames have none

- Date: 2026-11-23
- Status: in force
- Amends: [0001](0001-a.md), [0002](0002-b.md) (headers)

Context.
"""
TABLE = """| Page | Decision | Date |
|---|---|---|
| [0001](0001-a.md) | Frames have headers (superseded by 0002) | 2026-11-21 |
| [0002](0002-b.md) | Frames have short headers | 2026-11-22 |
| [0003](0003-c.md) | Some frames have none | 2026-11-23 |
"""


def pages(old=OLD, new=NEW, last=LAST):
    return {
        "0001": ("docs/adr/0001-a.md", old),
        "0002": ("docs/adr/0002-b.md", new),
        "0003": ("docs/adr/0003-c.md", last),
    }


class Decisions(unittest.TestCase):
    def test_right_ones(self):
        self.assertEqual(lint_decisions.head_problems(pages()), [])
        self.assertEqual(lint_decisions.table_problems(pages(), TABLE), [])

    def test_a_page_without_a_status(self):
        for text in (
            NEW.replace("- Status: in force, amended by\n  [0003](0003-c.md)\n", ""),
            NEW.replace("in force", "perhaps"),
            NEW.replace("- Date: 2026-11-22\n", ""),
            NEW.replace("# 0002 ", "# 0002: ").replace("# 0002:", "# two"),
            NEW.replace("# 0002", "# 0004"),
        ):
            found = lint_decisions.head_problems(pages(new=text))
            self.assertIn("docs/adr/0002-b.md: begins otherwise", found[0])

    def test_statuses_that_do_not_agree(self):
        in_force = OLD.replace("superseded by [0002](0002-b.md)", "in force")
        self.assertIn(
            "docs/adr/0001: its status does not say `superseded by` 0002",
            lint_decisions.head_problems(pages(old=in_force)),
        )
        alone = NEW.replace(", amended by\n  [0003](0003-c.md)", "")
        self.assertEqual(
            lint_decisions.head_problems(pages(new=alone)),
            ["docs/adr/0002: its status does not say `amended by` 0003"],
        )

    def test_a_table_that_is_old(self):
        for wrong in (
            TABLE.replace("short headers", "headers"),
            TABLE.replace(" (superseded by 0002)", ""),
            TABLE.replace("2026-11-23", "2026-11-24"),
            TABLE.replace("0003-c.md", "0003-d.md"),
        ):
            self.assertEqual(len(lint_decisions.table_problems(pages(), wrong)), 1)
        more = TABLE + "| [0004](0004-d.md) | None | 2026-11-24 |\n"
        self.assertEqual(
            lint_decisions.table_problems(pages(), more), ["docs/adr/README.md: has no page 0004"]
        )


if __name__ == "__main__":
    unittest.main()
