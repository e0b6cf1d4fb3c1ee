#!/usr/bin/env python3
"""Checks the heads of the pages in docs/adr/ and the table of docs/adr/README.md.

A page begins with its number and title, its date and its status; a page that supersedes or amends
another one and the status of that other page agree. The table has each page's title and date.
"""

import re
import sys

from lint_files import ROOT, tracked

FOLDER = "docs/adr/"
HEAD = re.compile(
    r"# (\d{4}) (?P<title>[^\n]+)\n\n"
    r"- Date: (?P<date>\d{4}-\d{2}-\d{2})\n"
    r"- Status: (?P<status>(?:in force|superseded by )[^\n]*(?:\n  [^\n]+)*)\n"
    r"(?P<relations>(?:- [A-Z][^\n]+(?:\n  [^\n]+)*\n)*)\n"
)
ROW = re.compile(r"\| \[(\d{4})\]\((\S+)\) \| (.+?) \| (\S+) \|")
NUMBER = re.compile(r"\[(\d{4})\]")


def read_head(text):
    """Title, date, status and relations ("Amends" -> numbers) of a page; None: it has no head."""
    head = HEAD.match(text)
    if head is None:
        return None
    items = re.findall(r"^- ([A-Z][a-z ]+): ((?:[^\n]|\n  )+)", head["relations"], re.M)
    relations = {name: set(NUMBER.findall(value)) for name, value in items}
    return head["title"], head["date"], head["status"], relations


def head_problems(pages):
    """`pages`: number -> (file, text). One line for each head that is wrong."""
    heads = {number: read_head(text) for number, (_, text) in pages.items()}
    wrong = [
        f"{pages[number][0]}: begins otherwise than `# NUMBER Title`, `- Date:`, `- Status:`"
        for number, head in heads.items()
        if head is None or not pages[number][1].startswith(f"# {number} ")
    ]
    for number, head in heads.items():
        for word, status in (("Supersedes", "superseded by"), ("Amends", "amended by")):
            for other in sorted(head[3].get(word, set())) if head else ():
                named = heads.get(other)
                _, found, numbers = named[2].partition(status) if named else ("", "", "")
                superseded = named is not None and named[2].startswith("superseded by")
                if number not in NUMBER.findall(numbers) and not (superseded and word == "Amends"):
                    wrong.append(f"{FOLDER}{other}: its status does not say `{status}` {number}")
    return wrong


def table_problems(pages, table):
    """One line for each page that the table of the README shows otherwise than it is."""
    rows = {number: (file, title, date) for number, file, title, date in ROW.findall(table)}
    wrong = [f"{FOLDER}README.md: has no page {number}" for number in rows.keys() - pages.keys()]
    for number, (file, text) in pages.items():
        head = read_head(text)
        if head is None:
            continue
        title, date, status, _ = head
        if status.startswith("superseded by"):
            title += f" (superseded by {', '.join(NUMBER.findall(status))})"
        if rows.get(number) != (file.removeprefix(FOLDER), title, date):
            wrong.append(
                f"{FOLDER}README.md: the row should be "
                f"| [{number}]({file.removeprefix(FOLDER)}) | {title} | {date} |"
            )
    return wrong


def main():
    pages = {
        name[len(FOLDER) :][:4]: (name, (ROOT / name).read_text(encoding="utf-8"))
        for name in tracked(f"{FOLDER}[0-9]*.md")
    }
    table = (ROOT / FOLDER / "README.md").read_text(encoding="utf-8")
    wrong = head_problems(pages) + table_problems(pages, table)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
