#!/usr/bin/env python3
"""Makes docs/frameworks.md of tests/apps/workloads.toml and docs/data/frameworks.json. With --check
it says whether the page is what it would make."""

import sys

import framework_results

PAGE = framework_results.ROOT / "docs" / "frameworks.md"
TRANSPORTS = ("shm", "tcp")
HEAD = """\
# Does my framework work?

Each row is a program of [tests/apps](../tests/apps) that uses a framework or library, ran natively
and through fargpu on a real GPU, and checked itself. *Right*: it computed the native values (equal
ones where three native runs agree, else within their spread). *shm* and *tcp* are
[transports](transports.md) between a client and a server on one host. What a program of your own
needs and fargpu lacks, `fargpu scan` says before it runs ([tools](tools.md)).

This page is made by `scripts/frameworks_page.py` from the results that `scripts/gpu-suite
--frameworks --results` enters into [a file](data/frameworks.json); do not edit it.
"""


def table(title, columns, rows):
    if not rows:
        return []
    lines = ["", f"## {title}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + [
        "| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows
    ]


def measured(result):
    note = f", {result['note']}" if "note" in result else ""
    return f"{result['date']}, {result['machine']}{note}"


def page():
    described, results = framework_results.described(), framework_results.load()
    works, fails, later, missing = [], [], [], []
    for row in described["workload"]:
        result = results.get(row["name"])
        if "later" in row:
            later.append((row["title"], row["later"], row["instead"]))
            continue
        if result is None:
            missing.append((row["title"], "it has not run on a GPU yet"))
            continue
        where = measured(result)
        if result["native"] == "fails":
            missing.append((row["title"], f"it fails natively: {result['reason']} ({where})"))
            continue
        verdicts = [result.get(transport, "not run") for transport in TRANSPORTS]
        if set(verdicts) <= {"right", "not run"} and "right" in verdicts:
            works.append((row["title"], *verdicts, where))
        else:
            instead = row.get("instead", "-")
            fails.append((row["title"], *verdicts, result["reason"], instead, where))
    lines = [
        *table("What works", ("program", *TRANSPORTS, "measured"), works),
        *table(
            "What does not work, and what to do instead",
            ("program", *TRANSPORTS, "what stops it", "instead", "measured"),
            fails,
        ),
        *table("What cannot work yet", ("what", "needs", "instead"), later),
        *table("What is not known", ("program", "why"), missing),
    ]
    return HEAD + "\n".join(lines) + "\n"


def main():
    made = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
    elif not PAGE.exists() or PAGE.read_text() != made:
        print("docs/frameworks.md is not what scripts/frameworks_page.py makes: run that")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
