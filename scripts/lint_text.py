#!/usr/bin/env python3
"""What scripts/lint looks for in texts: long lines, long files, the same code in several places."""

import argparse
import fnmatch
import sys
from collections import defaultdict

from lint_files import ROOT, tracked

COLUMNS = 100
LISTED, FAILING = 500, 800  # lines of a file
EXCUSE = "Long because"  # in the first lines of a file that may be longer
REPORTED, TOO_MUCH = 6, 20  # lines of code that stand in two places
MADE = ["schema/generated/*", "docs/coverage.md", "*/corpus/*", "*/golden/*", "LICENSE"]
CODE = [".cc", ".h", ".cu", ".py"]


def texts():
    """Name, suffix and lines of the text files that people write."""
    for name in tracked():
        path = ROOT / name
        if not any(fnmatch.fnmatch(name, pattern) for pattern in MADE):
            try:
                yield name, path.suffix, path.read_text(encoding="utf-8").splitlines()
            except UnicodeDecodeError:
                pass


def is_script(name, lines):
    return bool(lines) and lines[0].startswith("#!") or name.endswith(".sh")


def long_lines():
    """No line over 100 columns: code, scripts, prose, and the comments of data."""
    wrong = 0
    for name, suffix, lines in texts():
        prose = suffix == ".md"
        data = suffix in (".yml", ".toml", ".txt", ".cmake")
        if not (suffix in CODE or prose or data or is_script(name, lines)):
            continue
        for number, line in enumerate(lines, 1):
            if prose and line.lstrip().startswith("|") or data and not line.startswith("#"):
                continue
            if len(line) > COLUMNS:
                wrong += 1
                print(f"{name}:{number}: {len(line)} columns")
            elif line != line.rstrip() and not prose:
                wrong += 1
                print(f"{name}:{number}: blanks at the end")
    return wrong


def long_files():
    wrong = 0
    for name, suffix, lines in texts():
        if suffix not in CODE and not is_script(name, lines) or len(lines) <= LISTED:
            continue
        excused = any(EXCUSE in line for line in lines[:20])
        fails = len(lines) > FAILING and not excused
        wrong += fails
        print(f"{name}: {len(lines)} lines" + (f", more than {FAILING}" if fails else ""))
    return wrong


def significant(lines):
    """(number, text) of the lines that say something."""
    for number, line in enumerate(lines, 1):
        text = "".join(line.split())
        if len(text) > 3 and not text.startswith(("//", "#", "using", "import", "from")):
            yield number, text


def duplicates():
    """Lists stretches of at least REPORTED equal lines; very long ones are wrong."""
    places = defaultdict(list)
    files = {}
    for name, suffix, lines in texts():
        if suffix in CODE:
            files[name] = list(significant(lines))
            for at in range(len(files[name]) - REPORTED + 1):
                window = tuple(text for _, text in files[name][at : at + REPORTED])
                places[hash(window)].append((name, at))
    seen, found = set(), []
    for same in places.values():
        for first, second in zip(same, same[1:], strict=False):
            if (first, second) in seen:
                continue
            (a, i), (b, j) = first, second
            length = 0
            while (
                i + length < len(files[a])
                and j + length < len(files[b])
                and files[a][i + length][1] == files[b][j + length][1]
                and not (a == b and i + length >= j)
            ):
                seen.add(((a, i + length), (b, j + length)))
                length += 1
            if length >= REPORTED:
                found.append((length, f"{a}:{files[a][i][0]}", f"{b}:{files[b][j][0]}"))
    for length, a, b in sorted(found, reverse=True):
        print(f"{length} lines: {a} and {b}" + (", too many" if length > TOO_MUCH else ""))
    return sum(length > TOO_MUCH for length, _, _ in found)


def main():
    checks = {"lines": long_lines, "sizes": long_files, "duplicates": duplicates}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=checks)
    return 1 if checks[parser.parse_args().check]() else 0


if __name__ == "__main__":
    sys.exit(main())
