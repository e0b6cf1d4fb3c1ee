#!/usr/bin/env python3
"""Makes the table of docs/waits.md out of tests/e2e/sequences. With --check it says whether the
page is what it would make."""

import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "waits.md"
SEQUENCES = ROOT / "tests" / "e2e" / "sequences"
PLACE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->\n)", re.DOTALL)


def table():
    lines = ["| a step | natively | through fargpu | sequence |", "|---|---|---|---|"]
    for file in sorted(SEQUENCES.glob("*.yml")):
        of = yaml.safe_load(file.read_text())
        link = f"`{file.name}`"
        waits = f"{of['waits']}, shm {of['waits_shm']}" if "waits_shm" in of else of["waits"]
        lines.append(f"| {of['what']} | {of['natively']} | {waits} | {link} |")
    return "\n".join(lines) + "\n"


def main():
    text = PAGE.read_text()
    made = PLACE.sub(lambda _: table(), text)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
    elif text != made:
        print("docs/waits.md is not what scripts/waits_page.py makes: run that")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
