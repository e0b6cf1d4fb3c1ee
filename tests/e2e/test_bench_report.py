"""`fargpu bench --report`: the page is whole by itself, nothing that a file says becomes markup,
and every chart has its marks and its table in a browser, where there is one."""

import copy
import json
import pathlib
import tempfile

import bench_page
import fargpu_testing as testing

SLOWER, USAGE, BAD_FILE, NO_FILE = 1, 2, 78, 71
FIVE_ROUNDS = 5
HOSTILE = (
    "</script><script>document.title = 'broken'</script>",
    "<!--<script>",
    "<img src=x onerror=\"document.title = 'broken'\">",
    "\u2028\u2029\x00'\"&lt;`${1}",
    "__proto__",
    "constructor",
)


def bench(*arguments):
    return testing.run([testing.BUILD.fargpu, "bench", *arguments], env=testing.clean_environment())


class Case(bench_page.Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-report-"))
        cls.addClassCleanup(testing.shutil.rmtree, cls.folder, ignore_errors=True)


class Measured(Case):
    """The page of a short run on the simulated GPU."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.json, cls.html = cls.folder / "results.json", cls.folder / "report.html"
        # A sanitizer's simulated driver cannot be loaded by a program of another build.
        has_native = testing.SIMULATOR_CHOOSES_ADDRESSES
        native = ("--native-library", testing.BUILD.sim_libraries)
        with testing.Daemon() as daemon:
            cls.done = bench(
                *("--server", daemon.server, "--quick", "--time", "6s"),
                *("--only", "call_|launch|start|image|pinned/(4KiB|1MiB)|sessions.*/[14]$"),
                *("--json", cls.json, "--report", cls.html),
                *(native if has_native else ("--no-native",)),
            )
        assert cls.done.returncode == 0, cls.done.stderr
        cls.results = json.loads(cls.json.read_text())
        cls.page = bench_page.Page(cls.html.read_text())

    def test_it_is_whole_by_itself(self):
        self.is_whole_by_itself(self.page)

    def test_it_has_the_results(self):
        self.assertEqual(self.page.data(), {"results": self.results})

    def test_a_file_of_before_gives_the_same_page(self):
        again = self.folder / "again.html"
        done = bench("--from", self.json, "--report", again)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(again.read_text(), self.html.read_text())

    def slower(self):
        """Files of before and now: one case takes longer."""
        before = copy.deepcopy(self.results)
        for result in before["results"]:
            result["rounds"] = FIVE_ROUNDS
            result["median_interval"] = [result["median"] * 0.99, result["median"] * 1.01]
        now = copy.deepcopy(before)
        (slow,) = [
            each for each in now["results"] if (each["case"], each["way"]) == ("call_sync", "tcp")
        ]
        slow["median"] *= 2
        slow["median_interval"] = [slow["median"] * 0.99, slow["median"] * 1.01]
        now["machine"]["governor"] = "another"
        for name, content in (("before.json", before), ("now.json", now)):
            (self.folder / name).write_text(json.dumps(content))
        return self.folder / "before.json", self.folder / "now.json"

    def test_it_has_the_changes(self):
        before, now = self.slower()
        path = self.folder / "changes.html"
        done = bench("--from", now, "--compare", before, "--report", path)
        self.assertEqual(done.returncode, SLOWER, done.stdout + done.stderr)
        page = bench_page.Page(path.read_text())
        self.is_whole_by_itself(page)
        changes = page.data()["changes"]
        (change,) = changes["changes"]
        self.assertEqual(
            (change["case"], change["way"], change["kind"]), ("call_sync", "tcp", "slower")
        )
        self.assertAlmostEqual(change["now"], 2 * change["before"])
        self.assertEqual(len(changes["cautions"]), 1)

    def test_a_browser_shows_every_chart(self):
        page, complaints = bench_page.shown_by_browser(self.html)
        self.assertEqual(complaints, [])
        self.assertGreater(len(page.figures), 15)
        for figure in page.figures:
            with self.subTest(figure["title"]):
                self.assertGreater(figure["marks"], 0)
                self.assertGreater(figure["rows"], 1)
        titles = "\n".join(figure["title"] for figure in page.figures)
        for part in ("Host to device, pinned host memory: bandwidth", "call_sync: ", "fairness"):
            self.assertIn(part, titles)
        self.assertIn("This GPU is simulated", page.shown)
        self.assertIn(f": {self.results['gpu']['name']}; ", page.text.split("</title>")[0])
        self.assertNotRegex(page.markup(), r"NaN|undefined|Infinity|\bnull\b")
        self.assertEqual([each for each in page.fetched if not each.startswith("#")], [])

    def test_a_browser_shows_the_changes(self):
        before, now = self.slower()
        path = self.folder / "shown.html"
        bench("--from", now, "--compare", before, "--report", path)
        page, complaints = bench_page.shown_by_browser(path)
        self.assertEqual(complaints, [])
        self.assertIn("Not the same: machine governor", page.shown)
        self.assertRegex(page.shown, "call_sync *tcp")


def hostile_results():
    """Texts that are code, numbers that are none, members that are missing or something else."""
    right = {
        "case": "call_sync",
        "way": "tcp",
        "record": "call_sync",
        "median": 1000,
        "median_interval": [900, 1100],
        "p50": 1000,
        "p99": 2000,
        "histogram": [[1000, 3], [2000, 1]],
    }
    results = [right, {}, 3, None, [], {"case": 3, "way": "tcp"}]
    for text in HOSTILE:
        results += [{**right, name: text} for name in right]
        results += [{**right, "case": text, "way": text, "record": text, "bare": text}]
        results += [{**right, "record": "host_to_device_memcpy_ce", "memory": text, "bytes": 4}]
    for value in (None, -1, 0, 1e308, "4", [], {}, [[1e308, 1]], [[1, 2, 3]], True):
        results += [{**right, name: value} for name in (*right, "bytes", "count", "fairness")]
    skips = [{"way": text, "case": text, "why": text} for text in HOSTILE]
    machine = dict.fromkeys(("host", "cpu", "governor", "clock"), HOSTILE[0])
    return {
        "fargpu_bench": 1,
        "version": HOSTILE[0],
        "date": HOSTILE[1],
        "machine": machine,
        "gpu": {"name": HOSTILE[2], "power_milliwatts": "many"},
        "server": list(HOSTILE),
        "ways": {text: {"kind": "fargpu", "route": text} for text in HOSTILE},
        "results": results,
        "skipped": skips,
        HOSTILE[0]: HOSTILE[0],
    }


class Hostile(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = hostile_results()
        file, cls.html = cls.folder / "hostile.json", cls.folder / "hostile.html"
        file.write_text(json.dumps(cls.results))
        cls.done = bench("--from", file, "--report", cls.html)

    def test_its_texts_stay_texts(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        page = bench_page.Page(self.html.read_text())
        self.is_whole_by_itself(page)
        self.assertEqual(page.data(), {"results": self.results})

    def test_its_texts_stay_texts_in_a_browser(self):
        page, complaints = bench_page.shown_by_browser(self.html)
        self.assertEqual(complaints, [])
        self.assertEqual(page.tags["script"], 2)
        self.assertNotIn("img", page.tags)
        self.assertEqual(page.handlers, [])
        self.assertIn("<title>fargpu bench: ", page.text)
        self.assertIn(HOSTILE[0], page.shown)
        self.assertIn("could not be read and are left out", page.shown)
        self.assertNotRegex(page.markup(), r"NaN|Infinity")


class Usage(Case):
    def test_files(self):
        wrong = self.folder / "wrong.json"
        wrong.write_text("{}")
        for arguments, code, word in (
            (("--sim", "--report", "/nowhere/file"), NO_FILE, "--report"),
            (("--sim", "--report", self.folder), USAGE, "a folder"),
            (("--from", wrong, "--report", self.folder / "none.html"), BAD_FILE, "wrong.json"),
        ):
            with self.subTest(arguments):
                done = bench(*arguments)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(word, done.stderr)
        self.assertFalse((self.folder / "none.html").exists())

    def test_nothing_measured_is_a_page_too(self):
        empty, html = self.folder / "empty.json", self.folder / "empty.html"
        empty.write_text('{"fargpu_bench": 1, "results": []}')
        self.assertEqual(bench("--from", empty, "--report", html).returncode, 0)
        self.is_whole_by_itself(bench_page.Page(html.read_text()))


if __name__ == "__main__":
    testing.main()
