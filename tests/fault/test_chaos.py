"""Honest programs beside hostile ones: a client with the token and a stranger do what they can, and
workers and clients of theirs are killed at random. The honest ones compute right results all the
time, and hardly longer. `scripts/chaos` does the same for longer, and with a bound of the time."""

import concurrent.futures
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import fargpu_testing as testing
from fargpu_testing import HELLO, STATUS, frame, hello_body, receive_frame

TOKEN = "the token of all"
HONEST = ("copies", "reduction", "matmul_tiled", "histogram", "scan", "streams_events")
TAKES = ("variables", "heap", "kept", "waiting", "destroyed", "graphs", "local")


def opcodes():
    header = testing.BUILD.folder / "generated" / "schema" / "opcodes.h"
    return [int(number) for number in re.findall(r"op_\w+ = (\d+);", header.read_text())]


class Hostile:
    """One of them, from the beginning to the end of a `with`. `token`: None of a stranger."""

    def __init__(self, daemon, token, seed):
        self.daemon, self.token = daemon, token
        self.random = random.Random(seed)
        self.flags = ("--token-file", daemon.token_file)
        self.hello = hello_body(token=token if token else "guess")
        self.opcodes = opcodes()
        self.did = {}
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def work(self):
        acts = [self.silence, self.garbage, self.guesses]
        if self.token:
            acts += [self.calls, self.takes, self.killed, self.killed]
        while not self.stop.is_set():
            act = self.random.choice(acts)
            try:
                act()
            except (OSError, EOFError, subprocess.TimeoutExpired):
                pass  # the daemon ends what it does not like
            self.did[act.__name__] = self.did.get(act.__name__, 0) + 1

    def connect(self):
        connection = self.daemon.connect()
        connection.settimeout(5)
        return connection

    def silence(self):
        connections = [self.connect() for _ in range(100)]
        for connection in connections:
            connection.sendall(frame(HELLO, self.hello)[: self.random.randrange(40)])
        self.stop.wait(0.5)
        for connection in connections:
            connection.close()

    def garbage(self):
        with self.connect() as connection:
            if self.random.random() < 0.5:
                connection.sendall(frame(HELLO, self.hello))
            for _ in range(20):
                connection.sendall(self.random.randbytes(self.random.randrange(1, 5000)))

    def guesses(self):
        for opcode in (HELLO, STATUS) * 5:
            with self.connect() as connection:
                connection.sendall(frame(opcode, self.hello))
                receive_frame(connection)
            self.stop.wait(0.01)

    def calls(self):
        """A session with calls of random numbers and contents, some of which make objects."""
        with self.connect() as connection:
            connection.sendall(frame(HELLO, self.hello))
            receive_frame(connection)
            for number in range(200):
                words = [self.random.choice((0, 1, 4096, 6 << 50 | number << 4)) for _ in range(4)]
                body = struct.pack("<IHH4Q", 0, 4, 0, *words)
                opcode = self.random.choice(self.opcodes)
                connection.sendall(frame(opcode, body, sequence=number + 2, context=1, flags=0))
            connection.recv(1 << 16)

    def takes(self):
        """All the memory that it can get."""
        what = self.random.choice(TAKES)
        flags = (*self.flags, "--memory", "300M")
        program = self.daemon.start(testing.BUILD.program("limited_memory"), what, flags=flags)
        program.communicate(timeout=testing.LIMIT)

    def killed(self):
        """A program that is killed, or its worker."""
        name = self.random.choice(HONEST)
        program = self.daemon.start(testing.BUILD.program(name), flags=self.flags)
        self.stop.wait(self.random.uniform(0, 0.7))
        victim = program.pid if self.random.random() < 0.5 else self.daemon.worker_of(program.pid)
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        program.communicate(timeout=testing.LIMIT)


class Daemon(testing.Daemon):
    def __init__(self, folder):
        self.token_file = pathlib.Path(folder) / "token"
        self.token_file.touch(0o600)
        self.token_file.write_text(TOKEN + "\n")
        limits = ("--memory-per-job", "64M", "--host-memory-per-session", "256M")
        times = ("--job-grace", "1s", "--silent-worker", "5s")
        super().__init__("--token-file", self.token_file, *limits, *times)


def honest(daemon, sessions, rounds):
    """Runs the programs, each `rounds` times in each of the sessions at once; seconds, and what was
    wrong."""

    def one(number):
        wrong = []
        for turn in range(rounds):
            name = HONEST[(number + turn) % len(HONEST)]
            flags = ("--token-file", daemon.token_file)
            done = daemon.run(testing.BUILD.program(name), flags=flags, timeout=600)
            if done.returncode != 0 or "right" not in done.stdout:
                wrong.append(f"{name}: {done.returncode}: {done.stdout}{done.stderr}")
        return wrong

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(sessions) as pool:
        wrong = [each for list_ in pool.map(one, range(sessions)) for each in list_]
    return time.monotonic() - begin, wrong


def chaos(daemon, sessions, rounds, seconds, seed):
    """Quiet and hostile rounds in turn, for about so many seconds: the time of the hostile ones by
    that of the quiet ones, what the hostile ones did, and what was wrong."""
    quiet = loud = 0.0
    wrong, did = [], {}
    end = time.monotonic() + seconds
    while not wrong and (loud == 0 or time.monotonic() < end):
        took, found = honest(daemon, sessions, rounds)
        quiet, wrong = quiet + took, wrong + found
        with Hostile(daemon, TOKEN, seed) as client, Hostile(daemon, None, seed + 1) as stranger:
            took, found = honest(daemon, sessions, rounds)
        loud, wrong = loud + took, wrong + found
        seed += 2
        for each in (client, stranger):
            for name, times in each.did.items():
                did[name] = did.get(name, 0) + times
    if daemon.process.poll() is not None:
        wrong.append(f"the daemon ended with {daemon.process.returncode}")
    for line in daemon.log_text().splitlines():
        # Killed by us, or at the end of its client; anything else is a crash.
        crash = re.search(r"was killed by signal (?!9 )\d+[^\"]*", line)
        if crash:
            wrong.append(line)
    return loud / quiet, did, wrong


class Chaos(unittest.TestCase):
    def test_honest_programs_beside_hostile_ones(self):
        seed = random.randrange(1 << 30)
        with self.subTest(seed=seed), tempfile.TemporaryDirectory() as folder:
            with Daemon(folder) as daemon:
                ratio, did, wrong = chaos(daemon, sessions=6, rounds=8, seconds=12, seed=seed)
                self.assertEqual(wrong, [])
                self.assertGreater(len(did), 3, did)
                # Of a short run beside other work this says only that nobody was kept out.
                self.assertLess(ratio, 5)
                testing.wait_until(lambda: not daemon.workers(), "all sessions have ended")


if __name__ == "__main__":
    testing.main()
