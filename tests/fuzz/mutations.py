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
        """(body, bulk) with other values of one or two fields, other words in a list, or less of a
        list or of the bulk data and, accordingly, a smaller number."""
        random, function = self.random, self.calls.of_opcode[header[1]]
        body, way = bytearray(body), random.random()
        if way < 0.2:
            there = lists(self.calls.layouts, function.params_type, body)
            if there := [each for each in there if each[3] > 0]:
                name, _, first, size = random.choice(there)
                at = first + random.randrange(0, size, 8)
                self.change(body, name, at, min(random.choice((4, 8)), first + size - at))
        elif way < 0.4:
            bulk = self.less(function, header, body, bulk)
        else:
            places = self.places(header, body, form=False)
            for name, first, size in random.sample(places, min(len(places), 2)):
                if random.random() < 0.6:
                    self.change(body, name, first, size)
        return body, bulk

    def less(self, function, header, body, bulk):
        """The bulk data, whole or not; changes the body."""
        counted = {f.name: f.length or f.count for f in function.request_fields}
        there = lists(self.calls.layouts, function.params_type, body)
        there = [(counted.get(name), at, size) for name, at, _, size in there]
        if bulk and function.bulk_in:
            there.append((function.bulk_in.length or function.bulk_in.count, None, len(bulk)))
        if not there:
            return bulk
        counter, at, size = self.random.choice(there)
        for name, first, width in self.places(header, body):
            count = int.from_bytes(body[first : first + width], "little")
            if name == counter and count > 0 and size % count == 0:
                fewer = self.random.randrange(count)
                body[first : first + width] = fewer.to_bytes(width, "little")
                if at is None:
                    return bulk[: fewer * (size // count)]
                struct.pack_into("<I", body, at + 4, fewer * (size // count) << 3 | 2)
        return bulk

    def of(self, header, body, bulk):
        """The frames to send in place of this one."""
        random, places = self.random, self.places(header, body)
        header, body, repeated = list(header), bytearray(body), 1
        way = random.random()
        if places and way < 0.8:
            for name, first, size in random.sample(places, min(len(places), random.choice((1, 2)))):
                self.change(body, name, first, size)
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
        """An edge, what this field had in another call, or nearly what it has."""
        way = self.random.random()
        if way < 0.4:
            return self.random.choice(self.seen[name, size] or [old])
        if way < 0.8:
            number = self.random.choice(EDGES)
        else:
            number = int.from_bytes(old, "little") + self.random.choice(
                (-1, 1, 8, 1 << 26, 1 << 50)
            )
        return (number % (1 << 8 * size)).to_bytes(size, "little")


class Proxy:
    """Listens on a free port for programs of a daemon; as a context manager. `answers`: the share
    of answers and notices that are changed. `recordings`: of the sessions, when they have ended."""

    def __init__(self, daemon, calls, random, answers=0.0):
        self.daemon, self.calls, self.random, self.answers = daemon, calls, random, answers
        self.recordings, self.changed = [], 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        try:
            while True:
                client = self.listener.accept()[0]
                threading.Thread(target=self._connection, args=(client,), daemon=True).start()
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
            if self.proxy.random.random() < self.proxy.answers:
                frames = self.answers.of(header, body, bulk)
                self.proxy.changed += 1
            self.send(self.client, frames)

    @staticmethod
    def send(end, frames):
        end.sendall(b"".join(testing.HEADER.pack(*h) + body + bulk for h, body, bulk in frames))
