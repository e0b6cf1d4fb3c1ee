"""`fargpu bench app --report`: the page is whole by itself, no name becomes markup, and every chart
has its marks and its table in a browser, where there is one."""

import json
import pathlib
import shutil
import sys
import tempfile

import bench_page
import fargpu_testing as testing

USAGE, NO_FILE = 2, 71
COUNT = 30
LINKS = ("rtt=30us,bandwidth=40Gbps", "bandwidth=1Gbps")
HOSTILE = "<img src=x onerror=\"document.title = 'broken'\"><!--<script>"
# Waits in a function of a file, both with names that are markup where a page lets them.
PYTHON = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
context = ctypes.c_void_p()
def step():
    driver.cuMemAlloc_v2(ctypes.byref(count), ctypes.c_size_t(4))
step.__code__ = step.__code__.replace(co_name="<b>step</b>")
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
for _ in range(30):
    step()
"""


class Report(bench_page.Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-page-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)

    def bench(self, *command, flags=()):
        """(the page, the file of --json, the path of the page)"""
        page, file = self.folder / "page.html", self.folder / "prediction.json"
        with testing.Daemon() as daemon:
            done = testing.run(
                [testing.BUILD.fargpu, "bench", "app", "--server", daemon.server, *flags]
                + ["--report", page, "--json", file, "--", *command],
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return bench_page.Page(page.read_text()), json.loads(file.read_text()), page

    def waits(self, *flags):
        flags = [*flags, *(f"--link={link}" for link in LINKS)]
        return self.bench(testing.BUILD.program("waits"), COUNT, 3, 2, 0, flags=flags)

    def test_it_is_whole_by_itself_and_has_the_prediction(self):
        page, file, _ = self.waits("--where")
        self.is_whole_by_itself(page)
        self.assertEqual(page.data(), {"results": file})
        given = [link for link in file["links"] if link["given"]]
        self.assertEqual([link["bits_per_second"] for link in given], [40e9, 1e9])
        for link in file["links"]:
            parts = file["nanoseconds"] + link["waits_ns"] + link["bytes_ns"]
            self.assertAlmostEqual(link["nanoseconds"], parts, delta=10)
        self.assertEqual(file["calls"]["waited"], sum(one["waited"] for one in file["functions"]))
        self.assertEqual(file["calls"]["waited"], sum(one["waited"] for one in file["places"]))

    def test_a_browser_shows_every_chart(self):
        _, file, path = self.waits("--where")
        page, complaints = bench_page.shown_by_browser(path)
        self.assertEqual(complaints, [])
        titles = [figure["title"] for figure in page.figures]
        self.assertEqual(
            titles,
            [
                "Time by round trip and bandwidth",
                "What a link adds",
                "The time of the run",
                "By function",
                "By place",
            ],
        )
        for figure in page.figures:
            with self.subTest(figure["title"]):
                self.assertGreater(figure["marks"], 0)
                self.assertGreater(figure["rows"], 1)
        # Two ends of this run, the grid, and the link that has a round trip; the legend's.
        grid = [link for link in file["links"] if not link["given"]]
        self.assertEqual(page.figures[0]["marks"], 2 + len(grid) + 1 + 7)
        self.assertEqual(page.figures[0]["rows"], 6)
        for words in ("30 µs, 40 Gb/s", "0 ns, 1 Gb/s", "What would help most", "waits: main"):
            self.assertIn(words, page.shown)
        self.assertIn("<title>fargpu bench app: ", page.text)
        self.assertNotRegex(page.markup(), r"NaN|undefined|Infinity|\bnull\b")
        self.assertEqual([each for each in page.fetched if not each.startswith("#")], [])

    def test_without_places(self):
        _, file, path = self.waits()
        self.assertEqual(file["places"], [])
        page, complaints = bench_page.shown_by_browser(path)
        self.assertEqual(complaints, [])
        self.assertNotIn("By place", page.shown)
        self.assertIn("Not asked for: --where", page.shown)

    def test_names_stay_texts(self):
        program = self.folder / f"{HOSTILE}.py"
        program.write_text(PYTHON)
        python = self.folder / HOSTILE
        python.symlink_to(sys.executable)
        page, file, path = self.bench(python, program, flags=("--where", "--at", "rtt=100ms"))
        self.is_whole_by_itself(page)
        places = [one["place"] for one in file["places"]]
        self.assertTrue(any(one.endswith("in <b>step</b>") for one in places), places)
        shown, complaints = bench_page.shown_by_browser(path)
        self.assertEqual(complaints, [])
        self.assertNotIn("img", shown.tags)
        self.assertNotIn("b", shown.tags)
        self.assertEqual(shown.handlers, [])
        self.assertIn("<title>fargpu bench app: ", shown.text)
        self.assertIn(f"{HOSTILE}.py:6 in <b>step</b>", shown.shown)

    def test_files(self):
        for flag in ("--report", "--json"):
            for path, code in (("/nowhere/file", NO_FILE), (self.folder, USAGE)):
                with self.subTest(flag=flag, path=path):
                    done = testing.run(
                        [testing.BUILD.fargpu, "bench", "app", "--sim", flag, path, "--", "true"]
                    )
                    self.assertEqual(done.returncode, code, done.stderr)
                    self.assertIn(flag, done.stderr)


if __name__ == "__main__":
    testing.main()
