"""python3 -m apigen generate | cpp | list | verify | show | manual: see --help and
schema/README.md.
"""

import argparse
import signal
import sys
from pathlib import Path

from . import answers, describe, generate, manual, show, verify
from .errors import DescriptionError


def _generate(api, options):
    for name in generate.write_contracts(api, options.schema):
        print(name)
    return 0


def _cpp(api, options):
    generate.write_cpp(api, options.schema, options.out)
    if options.stamp:
        options.stamp.touch()
    return 0


def _list(api, options):
    print("\n".join(generate.outputs(api, options.schema)))
    return 0


def _manual(api, options):
    chapter = None
    for f in manual.expected(api, options.side):
        if f.chapter != chapter:
            chapter = f.chapter
            print(f"// {chapter}")
        print(manual.prototype(f, options.side))
    return 0


def _verify(api, options):
    problems = verify.problems(api, options.schema, options.base)
    for line in problems:
        print(f"apigen: {line}", file=sys.stderr)
    return 1 if problems else 0


def _show(api, options):
    print(show.text(api, options.schema, options.name))
    return 0


def _answers(api, options):
    generate.write(options.out, answers.text(api, options.cases))
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="apigen", description="Makes code and contracts from schema/api/."
    )
    parser.add_argument(
        "--schema",
        type=Path,
        default=Path(__file__).resolve().parent.parent,
        help="the schema/ folder",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser(
        "generate",
        help="write the committed contracts: registry, .capnp, exports.map, coverage page",
    )
    sub.set_defaults(run=_generate)
    sub = commands.add_parser("cpp", help="write the C++ of one build")
    sub.add_argument("--out", type=Path, required=True, help="folder for generated/")
    sub.add_argument("--stamp", type=Path, help="file to touch afterwards")
    sub.set_defaults(run=_cpp)
    sub = commands.add_parser("list", help="names of the files that 'cpp' writes")
    sub.set_defaults(run=_list)
    sub = commands.add_parser(
        "verify", help="what differs between description, contracts and hand-written files"
    )
    sub.add_argument(
        "--base", default="HEAD", help="git revision whose registry must be kept (default HEAD)"
    )
    sub.set_defaults(run=_verify)
    sub = commands.add_parser("show", help="everything made for one function")
    sub.add_argument("name")
    sub.set_defaults(run=_show)
    sub = commands.add_parser("answers", help="write the cases of tests/conformance/answers")
    sub.add_argument("--cases", type=Path, required=True, help="its cases.yml")
    sub.add_argument("--out", type=Path, required=True, help="the file to write")
    sub.set_defaults(run=_answers)
    sub = commands.add_parser("manual", help="prototypes that must be written by hand")
    sub.add_argument("side", choices=("client", "server"))
    sub.set_defaults(run=_manual)
    return parser


def main(arguments=None):
    options = _parser().parse_args(arguments)
    try:
        return options.run(describe.load(options.schema), options)
    except DescriptionError as error:
        print(f"apigen: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as `show cuX | head` wants it
    sys.exit(main())
