#!/usr/bin/env python3
"""Makes docs/frameworks.md of tests/apps/workloads.toml and docs/data/frameworks.json. With --check
it says whether the page is what it would make."""

import sys

import framework_results

PAGE = framework_results.ROOT / "docs" / "frameworks.md"
TRANSPORTS = ("shm", "tcp")
HEAD = """\
# Does my framework work?

Each row is a program of `tests/apps` that uses a framework or library and checks itself. It ran
natively and through fargpu on a real GPU, with client and server on one host, over the
[transports](transports.md) *shm* and *tcp*. *Right*: the results match the native ones within the
tolerance in the column "compared". *Spread*: equal to three native runs where these agree, else no
farther outside them than they differ from each other. *Equal*: equal to one native run. A number:
relative difference to one native run. Times are of the program's timed work, else of the whole
process, with the ratio to the native time of the same run; a row without a time was measured while
other programs ran. On machines with two GPUs two programs ran at once, each with one GPU and half
of the processors. `fargpu scan` lists what your own program needs and fargpu lacks, before it runs
([tools](tools.md)).

`scripts/frameworks_page.py` makes this page from the results that `scripts/gpu-suite --frameworks
--results` enters into [a file](data/frameworks.json); do not edit it.
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


def of_each(texts):
    """One text where the transports have the same, else each with its transport's name."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{transport}: {text}" for transport, text in texts.items())


def verdict(result):
    """With the time, where that is known, and how many times native it is."""
    if "seconds" not in result:
        return result["result"]
    ratio = result["seconds"] / result["native_seconds"]
    return f"{result['result']}, {result['seconds']:.3g} s x {ratio:.2f}"


def compared(row):
    tolerance = row.get("tolerance")
    return "spread" if tolerance is None else f"{tolerance:g}" if tolerance else "equal"


def page(described, results):
    works, fails, later, missing = [], [], [], []
    for row in described["workload"]:
        result = results.get(row["name"])
        if "later" in row:
            later.append((row["title"], row["later"], row["instead"]))
            continue
        if result is None:
            missing.append((row["title"], "it has not run on a GPU yet"))
            continue
        if result["native"] == "fails":
            why = f"it fails natively: {result['reason']} ({measured(result)})"
            missing.append((row["title"], why))
            continue
        ran = {transport: result[transport] for transport in TRANSPORTS if transport in result}
        if not ran:
            missing.append((row["title"], "it has not run through fargpu yet"))
            continue
        where = of_each({transport: measured(each) for transport, each in ran.items()})
        verdicts = [verdict(ran.get(each, {"result": "not run"})) for each in TRANSPORTS]
        wrong = {each: of["reason"] for each, of in ran.items() if of["result"] != "right"}
        if not wrong:
            works.append((row["title"], *verdicts, compared(row), where))
        else:
            instead = row.get("instead", "-")
            fails.append((row["title"], *verdicts, of_each(wrong), instead, where))
    lines = [
        *table("What works", ("program", *TRANSPORTS, "compared", "measured"), works),
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
    made = page(framework_results.described(), framework_results.load())
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
    elif not PAGE.exists() or PAGE.read_text() != made:
        print("docs/frameworks.md is not what scripts/frameworks_page.py makes: run that")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
