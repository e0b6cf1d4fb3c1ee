"""Parts of generated files, for `apigen show`."""

import re


def _block(text, start):
    """The function or struct whose text begins at `start`, to its closing brace at the left
    margin.
    """
    end = re.compile(r"^\}.*$", re.M).search(text, start)
    return text[start : end.end()] if end else text[start:]


def pieces(files, patterns):
    """(file, text) of what begins with one of the patterns: a line, or a block in braces."""
    for name, text in sorted(files.items()):
        for pattern in patterns:
            for match in re.finditer(pattern, text, re.M):
                line = text[match.start() : text.index("\n", match.start())]
                yield (
                    name,
                    (_block(text, match.start()) if line.rstrip().endswith("{") else line.strip()),
                )
