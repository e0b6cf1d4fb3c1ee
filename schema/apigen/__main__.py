"""python3 -m apigen generate | verify | show NAME | manual client|server (README.md beside it)."""

import argparse
import sys
from pathlib import Path

from . import describe, manual
from .errors import DescriptionError


def _manual(api, options):
    chapter = None
    for f in manual.expected(api, options.side):
        if f.chapter != chapter:
            chapter = f.chapter
            print(f"// {chapter}")
        print(manual.prototype(f, options.side))
    return 0


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="apigen", description="Makes code and contracts from schema/api/.")
    parser.add_argument("--schema", type=Path, default=Path(__file__).resolve().parent.parent, help="the schema/ folder")
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("manual", help="prototypes that must be written by hand")
    sub.add_argument("side", choices=("client", "server"))
    sub.set_defaults(run=_manual)
    options = parser.parse_args(arguments)
    try:
        return options.run(describe.load(options.schema), options)
    except DescriptionError as error:
        print(f"apigen: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
