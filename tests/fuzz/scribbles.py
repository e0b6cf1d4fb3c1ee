"""Changes of the memory that both ends of a session over shared memory have: the words of the
rings and the frames in them, by the layout of common/transport/shm. The end that they are meant for
stands still meanwhile, or not."""

import os
import pathlib
import re
import signal
import struct
import time

import fargpu_testing as testing
from calls import EDGES
from mutations import Changes

CONTROL_BYTES, OF_RING = 4096, 640
TAIL, HEAD, SLEEPS, WANTS, TAKEN = range(0, OF_RING, 128)
HEADER = testing.HEADER.size
MOST_IN_FLIGHT = 1 << 16  # bytes that are looked at


class Memory:
    """What a process has mapped, to be read and written."""

    def __init__(self, pid):
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
        shared = re.findall(r"^(\w+)-(\w+) rw-s .*/memfd:(fargpu(?:-host)?) ", maps, re.M)
        self.places = [(int(a, 16), int(b, 16), name) for a, b, name in shared]
        self.file = os.open(f"/proc/{pid}/mem", os.O_RDWR)

    def rings(self):
        """Of the session: the first place and the bytes of all."""
        for first, end, name in self.places:
            if name == "fargpu":
                return first, end - first
        return None

    def read(self, at, size):
        return os.pread(self.file, size, at)

    def write(self, at, data):
        os.pwrite(self.file, data, at)

    def word(self, at):
        return struct.unpack("<Q", self.read(at, 8))[0]

    def close(self):
        os.close(self.file)


class Ring:
    def __init__(self, memory, to_server):
        self.memory = memory
        base, size = memory.rings()
        half = (size - CONTROL_BYTES) // 2  # both are of one size
        self.capacity = half
        self.control = base + (0 if to_server else OF_RING)
        self.data = base + CONTROL_BYTES + (0 if to_server else half)

    def read(self, position, size):
        place = position % self.capacity
        first = self.memory.read(self.data + place, min(size, self.capacity - place))
        rest = size - len(first)
        return first + (self.memory.read(self.data, rest) if rest else b"")

    def write(self, position, data):
        for offset in range(0, len(data), 8):
            place = (position + offset) % self.capacity
            self.memory.write(self.data + place, data[offset : offset + 8])

    def frames(self):
        """(position, header, body) of those that wait in it."""
        head, tail = (self.memory.word(self.control + word) for word in (HEAD, TAIL))
        found = []
        while head + HEADER <= tail and tail - head <= MOST_IN_FLIGHT:
            header = testing.HEADER.unpack(self.read(head, HEADER))
            end = head + HEADER + header[5] + header[6]
            if header[0] != testing.MAGIC or end > tail:
                break
            found.append((head, header, self.read(head + HEADER, header[5])))
            head = end
        return found


class Scribbler:
    """Of one session. `to_server`: a client does it, else a server."""

    def __init__(self, calls, random, client, victim, to_server):
        self.random, self.victim, self.to_server = random, victim, to_server
        self.memory = Memory(client)
        self.ours = Ring(self.memory, to_server)  # into which this end writes
        self.theirs = Ring(self.memory, not to_server)
        kind = "params_type" if to_server else "results_type"
        self.changes = Changes(calls, random, kind)
        self.changed = self.frames = 0

    def run(self, goes_on):
        """Until the session ends."""
        try:
            while goes_on():
                if self.random.random() < 0.85:
                    self.frame()
                elif self.random.random() < 0.9:
                    self.bytes_of_frames()
                else:
                    self.words()
                time.sleep(self.random.choice((0, 0, 0.001)))
        except (OSError, struct.error, TypeError):
            pass  # it is over
        finally:
            self.memory.close()
        return self

    def frame(self):
        """A frame that waits is another one when it is read."""
        os.kill(self.victim, signal.SIGSTOP)
        try:
            time.sleep(0.002)
            if frames := self.ours.frames():
                position, header, body = self.random.choice(frames)
                self.changes.look_at(header, body)
                for changed, values, _ in self.changes.of(header, body, b"")[:1]:
                    if len(values) == len(body):
                        changed[5:7] = header[5:7]
                        self.ours.write(position, testing.HEADER.pack(*changed) + values)
                        self.frames += 1
        finally:
            os.kill(self.victim, signal.SIGCONT)

    def bytes_of_frames(self):
        """While they are read."""
        tail = self.memory.word(self.ours.control + TAIL)
        for _ in range(self.random.choice((1, 8, 64))):
            place = (tail - self.random.randrange(1 << 12)) % self.ours.capacity // 8 * 8
            self.memory.write(self.ours.data + place, self.number(0))
            self.changed += 1

    def words(self):
        """Indices and flags that this end may set, and what both share beside the rings."""
        beside = [each for each in self.memory.places if each[2] == "fargpu-host"]
        if beside and self.random.random() < 0.5:
            first, end, _ = self.random.choice(beside)
            at = self.random.randrange(first, end, 8)
        else:
            ring, words = self.random.choice(
                ((self.ours, (TAIL, SLEEPS, WANTS)), (self.theirs, (HEAD, SLEEPS, WANTS, TAKEN)))
            )
            at = ring.control + self.random.choice(words)
        self.memory.write(at, self.number(self.memory.word(at)))
        self.changed += 1

    def number(self, old):
        near = old + self.random.choice((-64, -8, -1, 1, 8, 32, 4096, self.ours.capacity))
        value = self.random.choice((near, near, self.random.choice(EDGES)))
        return struct.pack("<Q", value % (1 << 64))
