"""Running programs natively and through fargpu side by side: what scripts/gpu-suite and
scripts/suites share."""

import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
APPS = ROOT / "tests" / "apps"
HIDE = """
set -e
empty=$(mktemp -d)
for device in /dev/nvidia*; do
  if [ -d "$device" ]; then
    mount --bind "$empty" "$device"
  elif [ -e "$device" ]; then
    mount --bind /dev/null "$device"
  fi
done
rmdir "$empty"
exec "$@"
"""
# In front of a command: it runs in a mount namespace where no GPU is.
HIDDEN = ("unshare", "-m", "bash", "-c", HIDE, "hide")
TAIL = 15  # lines of stderr shown for a failure
STOPPED = 124  # exit code of one that took too long


class Mistake(Exception):
    """In how a script was called: one line that says what to do."""


def build_folder(word, simulated=False):
    """The whole path of a folder with what a daemon and its clients need."""
    build = pathlib.Path(word).resolve()
    needed = ["bin/fargpu", "bin/fargpud", *(["lib/libfargpu-sim.so"] if simulated else [])]
    for file in needed:
        if not (build / file).exists():
            raise Mistake(
                f"there is no {build / file}: build it (cmake --preset portable && cmake --build "
                "--preset portable --target product), or name another build with --build-dir"
            )
    return build


def python_program(word):
    """The whole path: programs run in other folders. A virtual environment's link stays one."""
    found = shutil.which(word)
    if found is None:
        raise Mistake(f"--python: there is no program {word}")
    return os.path.abspath(found)


def usage(name, mistake):
    """Of main(), for a Mistake."""
    print(f"{name}: {mistake}", file=sys.stderr)
    return 2


class Outcome:
    def __init__(self, code, stdout, stderr, wall):
        self.code, self.stdout, self.stderr, self.wall = code, stdout, stderr, wall
        self.values, self.seconds = None, None
        for line in stdout.splitlines():
            if line.startswith("{"):
                try:
                    parsed = json.loads(line)
                    self.values, self.seconds = parsed["values"], parsed["seconds"]
                except (ValueError, KeyError):
                    pass

    def last_lines(self):
        """What it said last; programs that check themselves say it on their standard output."""
        return last_lines(self.stdout + self.stderr)

    def last_line(self):
        return self.last_lines().splitlines()[-1] if self.last_lines() else "no word"

    def failure(self):
        """The last line, then what stood before it."""
        return f"exit code {self.code}: {self.last_line()}\n{self.last_lines()}"

    def time_text(self):
        inner = "" if self.seconds is None else f" ({self.seconds * 1e3:.1f} ms)"
        return f"{self.wall:.2f} s{inner}"


def run(command, limit, environment=None):
    begin = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the session that was started here, nothing else
        stdout, stderr = process.communicate()
        code, stderr = STOPPED, stderr + f"\nstopped after {limit} s"
    return Outcome(code, stdout, stderr, time.monotonic() - begin)


def last_lines(text):
    return "\n".join(text.strip().splitlines()[-TAIL:])


class Daemon:
    """A daemon of this build that listens on a port of loopback."""

    def __init__(self, build, work, driver=None, gpus=None, options=()):
        """driver: the library that it shall use, None: it finds the driver. gpus: the numbers of
        those that it lends, separated by commas, None: all. options: more of fargpud's."""
        self.build, self.work, self.driver, self.gpus = build, work, driver, gpus
        self.options = options
        self.process = None
        self.server = None

    def start(self):
        port_file, log = self.work / "port", open(self.work / "fargpud.log", "wb")
        command = [
            self.build / "bin" / "fargpud",
            "--listen",
            "127.0.0.1:0",
            "--port-file",
            port_file,
            *self.options,
        ]
        if self.driver:
            command += ["--driver", self.driver]
        chosen = {"CUDA_VISIBLE_DEVICES": self.gpus} if self.gpus else {}
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=os.environ | chosen,
        )
        end = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit("fargpud did not start:\n" + self.log())
            time.sleep(0.05)
        self.server = "127.0.0.1:" + port_file.read_text().split()[0]

    def log(self):
        return (self.work / "fargpud.log").read_text(errors="replace")

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def client(self, transport, gpus=1, options=(), hide=True):
        """In front of a command: it runs on this daemon's GPUs and, with `hide`, sees no other."""
        start = [self.build / "bin" / "fargpu", "run", "--server", self.server]
        start += ["--transport", transport, "--gpus", gpus, *options, "--"]
        return [str(part) for part in ((*HIDDEN, *start) if hide else start)]


@functools.cache
def machine():
    """The name of the first GPU, and its driver's version."""
    gpu = []
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpu = run(query, 30).stdout.splitlines()[:1]
    return gpu[0].replace(", ", ", driver ") if gpu else "unknown GPU"
