"""In programs of others, descriptors and threads are made in one place each (ADR 0059)."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What runs in processes of our own.
OURS = ("client/cli", "client/bench", "client/program")
PLACES = {"common/base/descriptors.cc", "common/host/thread.cc", "common/host/thread.h"}
MAKES_DESCRIPTOR = re.compile(
    r"(?<![A-Za-z0-9_])::(socket|socketpair|eventfd|epoll_create1?|timerfd_create|memfd_create"
    r"|open|openat|pipe2?|dup|dup2|dup3|accept4?|inotify_init1?|signalfd|mkostemp|mkstemp"
    r"|shm_open)\(|F_DUPFD"
    r"|SYS_(userfaultfd|pidfd_open|memfd_create)|USERFAULTFD_IOC_NEW|ofstream "
)
MAKES_THREAD = re.compile(r"std::j?thread\b(?!::)|std::async\b|pthread_create\(")
# How far above a call the guard may stand.
NEAR = 12
# Servers only, or a child of fork() that closes what it inherited.
ELSEWHERE = {
    ("common/transport/tcp/tcp.cc", "accept4"),
    ("common/bootstrap/unix_rendezvous.cc", "accept4"),
    ("common/transport/rdma/rdma_domain.cc", "open"),
    ("common/transport/rdma/rdma_domain.cc", "dup3"),
    ("common/host/sealed_file.cc", "open"),
}


def sources():
    for folder in ("client", "common"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".cc", ".h") and name not in PLACES and not name.startswith(OURS):
                code = [line.split("//")[0] for line in path.read_text().splitlines()]
                yield name, code


class ForeignProcess(unittest.TestCase):
    maxDiff = None

    def test_descriptors_are_made_in_one_place(self):
        found = []
        for name, code in sources():
            for i, line in enumerate(code):
                made = MAKES_DESCRIPTOR.search(line)
                if made is None or (name, made.group(1)) in ELSEWHERE:
                    continue
                near = " ".join(code[max(0, i - NEAR) : i + 1])
                if "descriptors::make" not in near and "StandardTaken" not in near:
                    found.append(f"{name}:{i + 1}: {line.strip()}")
        self.assertEqual(found, [])

    def test_threads_are_started_in_one_place(self):
        found = [
            f"{name}:{i + 1}: {line.strip()}"
            for name, code in sources()
            for i, line in enumerate(code)
            if MAKES_THREAD.search(line)
        ]
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
