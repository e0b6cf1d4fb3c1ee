"""Changes of frames, and a proxy between programs and a daemon that changes some of the answers on
their way, and records the calls."""

import collections
import socket
import struct
import threading

import fargpu_testing as testing
from calls import EDGES

KNOWN_CONTEXTS = (0, 1, 2, 3, 16, 1024, 65535)


def root(layouts, kind, body):
    """(fields, first byte and bytes of its numbers, number of its pointers) of a struct in a body;
    without fields: there is none."""
    if kind not in layouts.structs or len(body) < 8:
        return {}, 8, 0, 0
    word, words, pointers = struct.unpack_from("<iHH", body)
    start, size = 8 + (word >> 2) * 8, words * 8
    if word & 3 or start < 8 or start + size + 8 * pointers > len(body):
        return {}, 8, 0, 0
    return layouts.structs[kind][2], start, size, pointers


def field_places(layouts, kind, body):
    """(name, first byte, bytes) of the numbers that this body has of a struct."""
    fields, start, size, _ = root(layouts, kind, body)
    return [
        (name, start + first // 8, (end - first) // 8)
        for name, (_, first, end, pointer) in fields.items()
        if pointer is None and end - first >= 8 and end // 8 <= size
    ]


def lists(layouts, kind, body):
    """(name, place of the pointer, first byte, bytes) of the lists of bytes that it has."""
    fields, start, size, pointers = root(layouts, kind, body)
    found = []
    for name, (_, _, _, pointer) in fields.items():
        if pointer is None or pointer >= pointers:
            continue
        at = start + size + 8 * pointer
        offset, count = struct.unpack_from("<iI", body, at)
        first = at + 8 + (offset >> 2) * 8
        if offset & 3 == 1 and count & 7 == 2 and at < first <= len(body) - (count >> 3):
            found.append((name, at, first, count >> 3))
    return found


class Changes:
    """Changes of the frames of one direction of a session."""

    def __init__(self, calls, random, kind):
        self.calls, self.random, self.kind = calls, random, kind
        self.seen = collections.defaultdict(lambda: collections.deque(maxlen=64))

    def places(self, header, body, form=True):
        """Where its numbers are; without `form`, not those that other parts of it must fit."""
        function = self.calls.of_opcode.get(header[1])
        found = field_places(self.calls.layouts, function and getattr(function, self.kind), body)
        return (
            found if form else [place for place in found if place[0] not in self.formal(function)]
        )

    @staticmethod
    def formal(function):
        fields = [f for f in (*function.request_fields, function.bulk_in) if f]
        return {f.length or f.count for f in fields} | {f.name for f in fields if f.creates}

    def look_at(self, header, body):
        """What a field has had is a value for the same one of another call."""
        for name, first, size in self.places(header, body):
            self.seen[name, size].append(body[first : first + size])

    def values(self, header, body, bulk):
        """(body, bulk) with other values of one or two fields, other words in a list or the bulk
        data, or more or less of these and, accordingly, another number."""
        random, kind = self.random, getattr(self.calls.of_opcode[header[1]], self.kind)
        body, way = bytearray(body), random.random()
        if way < 0.1 and len(bulk) >= 8:
            bulk = bytearray(bulk)
            # Most often where a description, or its first part, would be.
            at = 8 * random.randrange(min(len(bulk) // 8, random.choice((4, 64, 1 << 20))))
            self.change(bulk, "bulk", at, 8)
        elif way < 0.2:
            there = lists(self.calls.layouts, kind, body)
            if there := [each for each in there if each[3] > 0]:
                name, _, first, size = random.choice(there)
                at = first + random.randrange(0, size, 8)
                self.change(body, name, at, min(random.choice((4, 8)), first + size - at))
        elif way < 0.45 and (resized := self.resized(header, body, bulk)) is not None:
            bulk = resized
        else:
            places = self.places(header, body, form=False)
            for name, first, size in random.sample(places, min(len(places), 2)):
                if random.random() < 0.6:
                    self.change(body, name, first, size)
        return body, bulk

    def counted(self, header, body, bulk):
        """(its counters with what they say, {list: counter}) of what a frame has or asks for."""
        function = self.calls.of_opcode.get(header[1])
        if function is None or len(body) % 8 != 0:
            return {}, {}
        fields, far = function.request_fields, function.bulk_in
        if self.kind == "results_type":
            fields, far = function.reply_fields, function.bulk_out
        there = lists(self.calls.layouts, getattr(function, self.kind), body)
        counters = {f.name: f.count or f.length for f in fields}
        counters = {name: counters.get(name) for name, *_ in there}
        if bulk and far:
            counters[None] = far.count or far.length
        if self.kind == "params_type":
            asked = [f for f in (*function.reply_fields, function.bulk_out) if f]
            counters |= {("asked", f.name): f.length for f in asked}
        numbers = {
            name: int.from_bytes(body[first : first + width], "little")
            for name, first, width in self.places(header, body)
            if name in counters.values()
        }
        return numbers, counters

    def resized(self, header, body, bulk):
        """The bulk data, whole or not; changes the body: a counter, and what it counts, or the size
        of a list. None: it has none."""
        numbers, counters = self.counted(header, body, bulk)
        if not numbers or self.random.random() < 0.3:
            return bulk if self.cut(header, body) else None
        some = [name for name, number in numbers.items() if number > 0]
        counter = self.random.choice(some or list(numbers))
        count = numbers[counter]
        fewer = self.random.randrange(count) if count else 0
        now = self.random.choice(
            (fewer, fewer, fewer, count + 1, count + 8, 2 * count + 1, 5000, 1 << 16)
        )
        for name, first, width in self.places(header, body):
            if name == counter:
                number = now % (1 << 8 * width)
                body[first : first + width] = number.to_bytes(width, "little")
        kind = getattr(self.calls.of_opcode[header[1]], self.kind)
        for name, at, first, size in lists(self.calls.layouts, kind, body):
            if counters.get(name) == counter:
                each = size // count if count else 4
                self.move(body, at, bytes(body[first : first + size])[: now * each], now * each)
        if counters.get(None) == counter and count:
            size = now * (len(bulk) // count)
            bulk = bulk[:size] + bytes(max(0, size - len(bulk)))
        return bulk

    def cut(self, header, body):
        """Makes a list shorter, or longer; False: there is none."""
        function = self.calls.of_opcode.get(header[1])
        if function is None or len(body) % 8 != 0:
            return False
        there = lists(self.calls.layouts, getattr(function, self.kind), body)
        if there:
            _, at, first, size = self.random.choice(there)
            now = self.random.choice((self.random.randrange(max(1, size)), size // 2, size + 8))
            self.move(body, at, bytes(body[first : first + size])[:now], now)
        return bool(there)

    @staticmethod
    def move(body, at, data, size):
        """The list whose pointer is there, to the end: nothing lies behind it."""
        struct.pack_into("<iI", body, at, (len(body) - at - 8) // 8 << 2 | 1, size << 3 | 2)
        body += data + bytes(-(-size // 8) * 8 - len(data))

    def of(self, header, body, bulk):
        """The frames to send in place of this one."""
        random, places = self.random, self.places(header, body)
        header, body, repeated = list(header), bytearray(body), 1
        way = random.random()
        resized = self.resized(header, body, bulk) if random.random() < 0.3 else None
        if resized is not None:
            bulk = resized
        elif places and way < 0.8:
            for name, first, size in random.sample(places, min(len(places), random.choice((1, 2)))):
                self.change(body, name, first, size)
        elif len(body) >= 8 and way < 0.6:
            self.change(body, "word", 8 * random.randrange(len(body) // 8), 8)
        elif body and way < 0.85:
            body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        elif way < 0.87:
            body = body[: 8 * random.randrange(len(body) // 8 + 1)] + bytes(random.choice((0, 8)))
        elif way < 0.9:
            bulk = random.choice((b"", bulk[: len(bulk) // 2], bulk + bytes(7)))
        elif way < 0.95:
            header[3] = random.choice(KNOWN_CONTEXTS)
        elif way < 0.96:
            header[7] = random.choice((0, 1, 2, 600, 999, -1))
        elif way < 0.98:
            header[1] = random.choice(list(self.calls.of_opcode))
        elif not header[2] & testing.WANT_REPLY:
            repeated = random.choice((0, 2))
        header[5], header[6] = len(body), len(bulk)
        return [(header, bytes(body), bulk)] * repeated

    def change(self, body, name, first, size):
        body[first : first + size] = self.value(name, size, body[first : first + size])

    def value(self, name, size, old):
        """An edge, what this or any field had in another call, or nearly what it has."""
        way = self.random.random()
        if way < 0.1:
            others = [seen for (_, width), seen in self.seen.items() if width == size and seen]
            return self.random.choice(self.random.choice(others or [[old]]))
        if way < 0.4:
            return self.random.choice(self.seen[name, size] or [old])
        if way < 0.7:
            number = self.random.choice(EDGES)
        else:
            number = int.from_bytes(old, "little")
            number += self.random.choice((-1, 1, 8, 64, 4096, 1 << 16, 1 << 20, 1 << 50, number))
        return (number % (1 << 8 * size)).to_bytes(size, "little")


class Proxy:
    """Listens on a free port for programs of a daemon; as a context manager. `answers`: the share
    of answers and notices that are changed. `recordings`: of the sessions, when they have ended."""

    def __init__(self, daemon, calls, random, answers=0.0):
        self.daemon, self.calls, self.random, self.answers = daemon, calls, random, answers
        self.recordings, self.changed = [], collections.Counter()  # by opcode
        self.sessions = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    def share(self, opcode):
        """How many of such answers are changed: seldom ones more often."""
        return self.answers * (10 if self.changed[opcode] < 20 else 1)

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for session in self.sessions:
            session.join(10)

    def _accept(self):
        try:
            while True:
                client = self.listener.accept()[0]
                session = threading.Thread(target=self._connection, args=(client,), daemon=True)
                session.start()
                self.sessions.append(session)
        except OSError:
            pass

    def _connection(self, client):
        try:
            server = self.daemon.connect()
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = _Session(self, client, server)
        answers = threading.Thread(target=session.guarded, args=(session.to_client,), daemon=True)
        answers.start()
        session.guarded(session.to_server)
        answers.join()
        client.close()
        server.close()
        session.recording.ended()
        if session.recording.calls:
            self.recordings.append(session.recording)


class Recording:
    """The calls of a session: (opcode, context, body, bulk) and, where there was one, the body of
    the answer. Not the rest of one that is long."""

    MOST_CALLS, MOST_BYTES = 4000, 16 << 20

    MOST_REFUSED = 20  # of one call: programs ask again and again until something is there

    def __init__(self):
        self.calls, self.answers = [], []
        self.places, self.bytes = {}, 0
        self.refused, self.dropped = collections.Counter(), set()

    def asked(self, header, body, bulk):
        self.bytes += len(body) + len(bulk)
        if len(self.calls) < self.MOST_CALLS and self.bytes < self.MOST_BYTES:
            self.places[header[4]] = len(self.calls)
            self.calls.append((header[1], header[3], body, bulk))
            self.answers.append(b"")

    def answered(self, header, body):
        place = self.places.pop(header[4], None)
        if place is None:
            return
        if header[7] == 0:
            self.answers[place] = body
            return
        self.refused[header[1]] += 1
        if self.refused[header[1]] > self.MOST_REFUSED:
            self.dropped.add(place)

    def ended(self):
        kept = [n for n in range(len(self.calls)) if n not in self.dropped]
        self.calls, self.answers = ([each[n] for n in kept] for each in (self.calls, self.answers))


class _Session:
    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.answers = Changes(proxy.calls, proxy.random, "results_type")
        self.recording = Recording()

    def guarded(self, work):
        try:
            work()
        except (OSError, EOFError, AssertionError):
            pass
        for end in (self.client, self.server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def to_server(self):
        while True:
            header, body, bulk = testing.receive_frame(self.client)
            if header[1] in self.proxy.calls.of_opcode:
                self.recording.asked(header, body, bulk)
            self.send(self.server, [(header, body, bulk)])

    def to_client(self):
        while True:
            header, body, bulk = testing.receive_frame(self.server)
            if header[2] & testing.REPLY:
                self.recording.answered(header, body)
            frames = [(header, body, bulk)]
            self.answers.look_at(header, body)
            if self.proxy.random.random() < self.proxy.share(header[1]):
                frames = self.answers.of(header, body, bulk)
                self.proxy.changed[header[1]] += 1
            self.send(self.client, frames)

    @staticmethod
    def send(end, frames):
        end.sendall(b"".join(testing.HEADER.pack(*h) + body + bulk for h, body, bulk in frames))
