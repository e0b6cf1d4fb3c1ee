#!/usr/bin/env python3
"""Makes the tables of docs/results.md, each between `<!-- table NAME -->` and `<!-- end -->`. With
--check it says whether the page is what it would make, and whether it links to every page of
measurements.

docs/data/results.yml says what a table has, and in which order. The figures stand beside the pages
of measurements, in docs/measurements/DATE-TOPIC.yml:

    runs:                       # of this measurement
      calls: {machine: one H100 of 32 cores, command: bench/beside_native.sh, anchor: a-heading}
    figures:
      calls:                    # the table
        launch: {run: calls, native: 3.65, shm: 0.59, tcp: 0.52}

A row shows the newest figures that there are of it, as they are written, and names their run.
`ratio_to` names the column of whose numbers the others' are so many times, in brackets."""

import pathlib
import re
import sys
import textwrap

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
TABLES = ROOT / "docs" / "data" / "results.yml"
MEASUREMENTS = ROOT / "docs" / "measurements"
PLACE = re.compile(r"(?<=<!-- table )([\w-]+)( -->\n).*?(?=<!-- end -->\n)", re.DOTALL)
WIDTH = 100


class WrongData(Exception):
    """No page can be made; the message says why."""


class Loader(yaml.BaseLoader):
    """Of lists, mappings and texts: 6.20 stays 6.20. A name that stands twice is wrong."""

    def construct_mapping(self, node, deep=False):
        names = [self.construct_object(key) for key, _ in node.value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise WrongData(f"{twice[0]} stands twice, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


def load(path):
    try:
        return yaml.load(path.read_text(), Loader=Loader)
    except (yaml.YAMLError, WrongData) as error:
        raise WrongData(f"{path.name}: {error}") from None


def describe(page, run):
    """What stands below a table about a run of the measurement `page`."""
    anchor = f"#{run['anchor']}" if "anchor" in run else ""
    date = page[: len("2026-01-31")]
    link = f"[{date}](measurements/{page}.md{anchor})"
    command = [f"`{run['command']}`"] if "command" in run else []
    return ", ".join([link, *filter(None, [run.get("machine")]), *command])


def newest_figures(folder=MEASUREMENTS):
    """{table: {row: (text about the run, {column: figure})}}"""
    newest = {}
    for path in sorted(folder.glob("*.yml")):  # by date
        if not path.with_suffix(".md").exists():
            raise WrongData(f"{path.name} stands beside no page")
        data = load(path)
        runs = {name: describe(path.stem, run) for name, run in data["runs"].items()}
        for table, rows in data["figures"].items():
            for row, figures in rows.items():
                if figures.get("run") not in runs:
                    raise WrongData(f"{path.name}: {table}: {row}: 'run' is none of this file")
                newest.setdefault(table, {})[row] = (runs[figures["run"]], figures)
    return newest


def with_ratio(figure, base):
    try:
        times = float(figure) / float(base)
    except ValueError:
        return figure
    return f"{figure} ({times:.2f})" if times < 10 else f"{figure} ({times:.0f})"


def line_of(cells):
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def cells(figures, columns, ratio_to):
    for column in columns:
        figure = figures.get(column, "")
        is_ratio = ratio_to is not None and column != ratio_to
        yield with_ratio(figure, figures[ratio_to]) if is_ratio else figure


def table(name, described, newest):
    """The lines of a table, and of its runs below."""
    columns, known = described["columns"], newest.get(name, {})
    for row, (_, figures) in known.items():
        if row not in described["rows"]:
            raise WrongData(f"{name}: {row}: results.yml has no such row")
        if extra := figures.keys() - set(columns) - {"run"}:
            raise WrongData(f"{name}: {row}: no column {', '.join(sorted(extra))}")
    if len(set(described["rows"])) < len(described["rows"]):
        raise WrongData(f"{name}: results.yml has a row twice")
    if missing := [row for row in described["rows"] if row not in known]:
        raise WrongData(f"{name}: no figures of {', '.join(missing)}")
    runs = list(dict.fromkeys(known[row][0] for row in described["rows"]))
    several = len(runs) > 1
    heads = [described["first"], *columns] + ["run"] * several
    lines = [line_of(heads), "|" + "---|" * len(heads)]
    for row in described["rows"]:
        run, figures = known[row]
        made = [row, *cells(figures, columns, described.get("ratio_to"))]
        lines.append(line_of(made + [str(runs.index(run) + 1)] * several))
    numbered = [f"{number} {run}" for number, run in enumerate(runs, 1)] if several else runs
    below = ("Runs: " if several else "Run: ") + "; ".join(numbered) + "."
    return [
        *lines,
        "",
        *textwrap.wrap(below, WIDTH, break_long_words=False, break_on_hyphens=False),
    ]


def page(text, tables, newest):
    named = [place[1] for place in PLACE.finditer(text)]
    if sorted(named) != sorted(tables):
        raise WrongData(f"the page has the tables {named}, results.yml {list(tables)}")
    if extra := newest.keys() - tables.keys():
        raise WrongData(f"results.yml has no table {', '.join(sorted(extra))}")

    def made(place):
        lines = table(place[1], tables[place[1]], newest)
        return place[1] + place[2] + "\n" + "\n".join(lines) + "\n\n"

    return PLACE.sub(made, text)


def not_linked(text, folder=MEASUREMENTS):
    names = [path.name for path in sorted(folder.glob("*.md"))]
    return [name for name in names if f"(measurements/{name}" not in text]


def main():
    text = PAGE.read_text()
    try:
        made = page(text, load(TABLES), newest_figures())
    except WrongData as wrong:
        print(f"docs/results.md cannot be made: {wrong}")
        return 1
    for name in not_linked(text):
        print(f"docs/results.md does not link to docs/measurements/{name}")
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
    elif text != made:
        print("docs/results.md is not what scripts/results_page.py makes: run that")
        return 1
    return 1 if not_linked(text) else 0


if __name__ == "__main__":
    sys.exit(main())
