"""What a page of `--report` of `fargpu bench` or `fargpu bench app` is: read as text, and as a
browser shows it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from html.parser import HTMLParser

LIMIT = 120  # seconds
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_FLAGS = (
    "--headless",
    "--no-sandbox",  # which root may not have
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
)
FETCHES = ("src", "srcset", "href", "xlink:href", "data", "action", "poster", "background")


class Page(HTMLParser):
    """`tags`: how often each stands there; `fetched`: addresses that a browser would look at;
    `scripts`: {id or "": text}; `figures`: of each, its heading, marks of its charts and rows of
    its table; `handlers`: attributes that are code."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.fetched, self.scripts = text, {}, [], {}
        self.figures, self.handlers, self.shown = [], [], ""
        self.script = self.heading = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.fetched += [attributes[name] for name in FETCHES if name in attributes]
        self.handlers += [name for name in attributes if name.startswith("on")]
        if tag == "script":
            self.script = attributes.get("id", "")
            self.scripts.setdefault(self.script, "")
        if tag == "figure":
            self.figures.append({"title": "", "marks": 0, "rows": 0})
        if tag == "h3":
            self.heading = True
        if self.figures and self.tags["figure"] > self.tags.get("/figure", 0):
            kind = attributes.get("class", "").split()
            self.figures[-1]["marks"] += "mark" in kind or "part" in kind
            self.figures[-1]["rows"] += tag == "tr"

    def handle_endtag(self, tag):
        self.tags["/" + tag] = self.tags.get("/" + tag, 0) + 1
        if tag == "script":
            self.script = None
        if tag == "h3":
            self.heading = None

    def handle_data(self, data):
        if self.script is not None:
            self.scripts[self.script] += data
            return
        self.shown += data
        if self.heading and self.figures:
            self.figures[-1]["title"] += data

    def data(self):
        return json.loads(self.scripts["results"])

    def markup(self):
        """Without scripts."""
        return re.sub(r"<script.*?</script>", "", self.text, flags=re.DOTALL)


class Case(unittest.TestCase):
    def is_whole_by_itself(self, page):
        """A page as it was written: nothing to fetch, one script and one text of results."""
        self.assertEqual(page.fetched, [])
        self.assertEqual(page.handlers, [])
        self.assertEqual(set(page.scripts), {"", "results"})
        self.assertEqual(page.tags["script"], 2)
        for tag in ("link", "img", "iframe", "object", "embed", "base", "form"):
            self.assertNotIn(tag, page.tags)
        for address in ("http://", "https://", "url(//", "@import"):
            self.assertNotIn(address, page.text.replace("http://www.w3.org/2000/svg", ""))
        self.assertNotIn("<", page.scripts["results"])
        self.assertTrue(page.scripts["results"].isascii())
        self.assertIn("default-src 'none'", page.text)


def browser():
    """Its path; a test without one is skipped. FARGPU_CHROMIUM names one that is elsewhere."""
    named = os.environ.get("FARGPU_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise unittest.SkipTest("there is no Chromium")
    return found


def shown_by_browser(path):
    """(the page as scripts made it, what they complained of)."""
    with tempfile.TemporaryDirectory(prefix="fargpu-browser-") as folder:
        done = subprocess.run(
            [browser(), *BROWSER_FLAGS, f"--user-data-dir={folder}", "--dump-dom", path.as_uri()],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
        )
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Page(done.stdout), complaints
