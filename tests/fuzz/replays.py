"""Calls of a recorded session, made again in another one: one after the other or some of them many
times, as they were or changed. Objects that are made once more get new ids; addresses and whatever
else a server chooses are those of the new session."""

import bisect
import collections
import struct
import time

import fargpu_testing as testing
import hostile
import recipes
from calls import Message, Objects
from connection import Connection
from management import Session
from mutations import Changes, lists

FIRST_SLOT, SLOTS = 2000, 4096  # of ids that recorded sessions do not have
NEAR = 1 << 28  # behind an address: what is part of the same memory
# Answers to what a worker asks; recorded ones come at the wrong time.
ASKED = ("fgFetched", "fgDelivered")
NEARBY = 100  # calls
CHANGES = 60  # of each call, before what succeeds seldom is looked at most
PATIENCE = 10  # seconds for what succeeds again and again
SEEN = 1 << 16  # bytes of a body in which addresses are looked for


def words(body):
    body = body[:SEEN]
    return struct.unpack_from(f"<{len(body) // 8}Q", body)


class Names:
    """The words of a recorded session that are others in this one."""

    def __init__(self):
        self.now, self.addresses = {}, []

    def learn(self, before, now):
        for old, new in zip(words(before), words(now), strict=False):
            if old != new and old >= 1 << 32:
                self.name(old, new)

    def name(self, old, new):
        if old not in self.now and old < 1 << 48:
            bisect.insort(self.addresses, old)
        self.now[old] = new

    def translate(self, body):
        found = list(words(body))
        for place, word in enumerate(found):
            if word in self.now:
                found[place] = self.now[word]
            elif 1 << 32 <= word < 1 << 48:
                below = bisect.bisect(self.addresses, word)
                if below and word - (base := self.addresses[below - 1]) < NEAR:
                    found[place] = self.now[base] + word - base
        return struct.pack(f"<{len(found)}Q", *found) + body[8 * len(found) :]


class Ends:
    """How often changes of a call have ended the session: what does so often is done seldom."""

    GOOD = 0.02

    def __init__(self):
        self.changed, self.ended = collections.Counter(), collections.Counter()

    def allows(self, name, random):
        share = (self.ended[name] + 0.1) / (self.changed[name] + 1)
        return random.random() < self.GOOD / max(self.GOOD, share)


class Replay:
    """A session in which a recording is made again."""

    def __init__(self, daemon, recording, counts, random, waits, ends, **hello):
        self.recording, self.counts, self.random = recording, counts, random
        self.calls, self.ends = counts.calls, ends
        self.objects = Objects(self.calls, random)
        # Calls that are left out: they would wait for what does not come.
        self.waits = {place for each, place in waits if each is recording}
        self.connection = Connection(daemon, gpus=2, **hello)
        self.connection.on_fetch = self.fetch
        self.changes = Changes(self.calls, random, "params_type")
        self.names, self.made, self.changed, self.sent = Names(), 0, 0, 0
        self.at = 0  # of the recording, for those who want to know where it ended

    def all(self, until, more=0.05, broken=0.0):
        """Its calls before this one; changed copies before some, some changed in their form."""
        for place in range(min(until, len(self.recording.calls))):
            if place in self.waits:
                continue
            self.at = place
            if self.random.random() < more:
                for _ in range(self.random.choice((1, 2, 4, 8))):
                    self.copy(self.at)
            if self.random.random() < more / 2:
                self.in_no_context(self.at)
            if self.random.random() < broken:
                self.broken(self.at)
            else:
                self.again(self.at, anew=False)

    def repeat(self, first, last, target, times):
        """Part of it again and again; the share of `target`, one of its calls or None, with
        success."""
        good = 0
        for _ in range(times):
            for place in range(first, last):
                if place in self.waits:
                    continue
                self.at = place
                chance = self.random.random()
                if chance < (0.4 if self.at == target else 0.15):
                    self.copy(self.at)
                good += self.again(self.at, anew=True) and self.at == target
                if self.at == target and chance > 0.7:
                    self.random.choice((self.in_no_context, self.wrong))(self.at)
        return good / times

    def send(self, opcode, context, body, bulk, flags=testing.WANT_REPLY, result=0):
        """The answer's body; None: it was refused."""
        name = self.calls.of_opcode[opcode].name
        self.sent += 1
        try:
            code, answer = self.connection.send(opcode, flags, context, result, body, bulk)
        except TimeoutError:
            raise
        except (OSError, EOFError):
            self.counts.refused[name] += 1
            raise
        (self.counts.refused if code else self.counts.succeeded)[name] += 1
        return None if code else answer

    def again(self, place, anew):
        """As it was; whether it has succeeded."""
        opcode, context, body, bulk = self.recording.calls[place]
        if self.calls.of_opcode[opcode].name in ASKED:
            return False
        header = (0, opcode, 0, context)
        self.changes.look_at(header, body)
        old = [body[first : first + 8] for first in self.created(header, body)]
        new = [self.new_id(each) if anew else each for each in old]
        for before, now in zip(old, new, strict=True):
            self.names.name(*struct.unpack("<QQ", before + now))
        body = self.names.translate(body)
        answer = self.send(opcode, context, body, bulk)
        if answer is None:
            return False
        self.names.learn(self.recording.answers[place], answer)
        self.has_made(header, body, answer)
        return True

    def fetch(self, body):
        """Of a copy that follows its stream, or of a stream that waits for deliveries."""
        copy, offset, size = words(body)[1:4]
        name = "fgFetched" if size else "fgDelivered"
        values = dict(id=copy) | (dict(offset=offset, bytes=size) if size else {})
        body = self.calls.layouts.encode(self.calls.by_name[name].params_type, values)
        kinds = (self.counts.succeeded, self.counts.refused)
        self.connection.post(
            self.calls.opcode[name],
            body,
            bytes(size),
            lambda result: kinds[result != 0].update([name]),
        )

    def has_made(self, header, body, answer):
        """For calls by the description."""
        function = self.calls.of_opcode[header[1]]
        message = Message.of(function, self.objects)
        for name, first, _ in self.changes.places(header, body):
            for field in function.request_fields:
                number = int.from_bytes(body[first : first + 8], "little")
                if field.name == name and field.creates in self.calls.kinds:
                    message.made.append((field.creates, number))
                if field.name == name and field.destroys in self.calls.kinds:
                    message.ended.append((field.destroys, number))
        message.answered(answer)
        for name, _, first, size in lists(self.calls.layouts, function.params_type, body):
            if name == "hash":
                self.objects.images.append(body[first : first + size])

    def by_description(self, function, times):
        for _ in range(times):
            message = Message(function, self.objects)
            context = self.random.choice((1, 1, 1, 1, 1, 0, 65535))
            opcode = self.calls.opcode[function.name]
            answer = self.send(opcode, context, message.body(), message.bulk)
            if answer is not None:
                message.answered(answer)

    def created(self, header, body):
        """Where its ids of new objects are."""
        function = self.calls.of_opcode[header[1]]
        ids = {f.name for f in function.request_fields if f.creates in self.calls.kinds}
        return [first for name, first, size in self.changes.places(header, body) if name in ids]

    def new_id(self, old):
        """Of the same kind."""
        self.made += 1
        kind = int.from_bytes(old, "little") >> 50
        return (kind << 50 | FIRST_SLOT + self.made % SLOTS << 4).to_bytes(8, "little")

    def copy(self, place):
        """With other values, under new ids."""
        opcode, context, body, bulk = self.recording.calls[place]
        name = self.calls.of_opcode[opcode].name
        if not self.ends.allows(name, self.random):
            return
        header = (0, opcode, 0, context)
        body, bulk = self.changes.values(header, self.names.translate(body), bulk)
        for first in self.created(header, body):
            body[first : first + 8] = self.new_id(body[first : first + 8])
        self.changed += 1
        self.ends.changed[name] += 1
        self.watched(name, opcode, context, bytes(body), bytes(bulk))

    def hostile_from(self, place):
        """This call and some that follow."""
        tried = set()
        for at in range(place, min(place + NEARBY, len(self.recording.calls))):
            if at in self.waits:
                continue
            self.at = at
            if (opcode := self.recording.calls[at][0]) not in tried:
                tried.add(opcode)
                self.hostile(at)
            self.again(at, anew=False)

    def hostile(self, place):
        """Some times with other values, or with more or less in the lists that it has or asks for,
        whatever becomes of the session."""
        opcode, context, body, bulk = self.recording.calls[place]
        for _ in range(6):
            header, changed = (0, opcode, 0, context), bytearray(self.names.translate(body))
            data = (
                self.changes.resized(header, changed, bulk) if self.random.random() < 0.5 else None
            )
            if data is None:
                changed, data = self.changes.values(header, changed, bulk)
            for first in self.created(header, changed):
                changed[first : first + 8] = self.new_id(changed[first : first + 8])
            self.changed += 1
            self.ends.changed[self.calls.of_opcode[opcode].name] += 1
            self.send(opcode, context, bytes(changed), bytes(data))

    def broken(self, place):
        """Changed in any way."""
        opcode, context, body, bulk = self.recording.calls[place]
        header = (0, opcode, testing.WANT_REPLY, context, 0, 0, 0, 0)
        body = self.names.translate(body)
        for other, changed, data in self.changes.of(header, body, bulk):
            self.changed += 1
            self.send(other[1], other[3], changed, data, result=other[7])

    def wrong(self, place):
        """With a number that means nothing."""
        opcode, context, body, bulk = self.recording.calls[place]
        name = self.calls.of_opcode[opcode].name
        body = bytearray(self.names.translate(body))
        places = self.changes.places((0, opcode, 0, context), body, form=False)
        if places and self.ends.allows(name, self.random):
            _, first, size = self.random.choice(places)
            body[first : first + size] = self.random.choice((b"\xff", b"\x11")) * size
            self.ends.changed[name] += 1
            self.changed += 1
            self.watched(name, opcode, context, bytes(body), bulk)

    def watched(self, name, *frame):
        try:
            self.send(*frame)
        except (OSError, EOFError):
            self.ends.ended[name] += 1
            raise

    def in_no_context(self, place):
        opcode, _, body, bulk = self.recording.calls[place]
        self.send(opcode, 65535, self.names.translate(body), bulk)


class Known:
    """What all replayers have in common: recordings, and what has become of their calls."""

    def __init__(self, calls, recordings):
        more, self.importing = recipes.recordings(calls)
        self.recipes = [*more, *hostile.recordings(calls), self.importing]
        self.recordings = [*recordings, *self.recipes]
        self.places = collections.defaultdict(list)  # by name: (recording, place)
        for recording in self.recordings:
            for place, call in enumerate(recording.calls):
                self.places[calls.of_opcode[call[0]].name].append((recording, place))
        self.lists = [name for name in self.places if self.has_lists(calls.by_name[name])]
        self.good = {}  # by name: the part of a recording that needs the fewest calls for a success
        self.waits, self.ends = [], Ends()  # (recording, place) of calls that did not end
        self.tried = collections.Counter()

    @staticmethod
    def has_lists(function):
        names = {f.name for f in function.request_fields}
        fields = [*function.request_fields, function.bulk_in]
        fields += [*function.reply_fields, function.bulk_out]
        return any(f and (f.capnp == "Data" or (f.count or f.length) in names) for f in fields)

    def least_changed(self, names):
        """Of those that have been changed, or tried, seldom; empty: none is."""

        def often(name):
            return self.ends.changed[name] + 6 * self.tried[name]

        return sorted((name for name in names if often(name) < CHANGES), key=often)[:6]


class Replayer:
    """Makes recorded calls until each has been made often enough, and then goes on."""

    def __init__(self, daemon, known, counts, random):
        self.known = known
        self.daemon, self.counts, self.random, self.calls = daemon, counts, random, counts.calls
        self.exporter, self.key, self.exported = None, "", {}
        self.sessions = self.broken = self.waited = self.changed = 0

    def run(self, goes_on):
        while goes_on():
            replay = None
            try:
                if self.random.random() < 0.05:
                    Session(self.daemon, self.counts, self.random).run(times=400)
                recording, work = self.choose()
                replay = self.begin(recording)
                self.sessions += 1
                work(replay)
            except TimeoutError:
                self.waited += 1
                if replay is not None:
                    self.known.waits.append((recording, replay.at))
            except (OSError, EOFError):
                self.broken += 1
            finally:
                if replay is not None:
                    replay.connection.close()
                    self.changed += replay.changed
        if self.exporter is not None:
            self.exporter.connection.close()

    def begin(self, recording):
        if recording is not self.known.importing:
            return self.replay(recording)
        if self.exporter is None or self.random.random() < 0.05:
            if self.exporter is not None:
                self.exporter.connection.close()
            self.exporter = None
            self.key = '0x"' + self.random.randbytes(16).hex() + '"'
            exporter = self.replay(recipes.exporter(self.calls), jobKey=self.key)
            self.exporter, self.exported = exporter, recipes.export(exporter)
        replay = self.replay(recording, jobKey=self.key)
        replay.names.now |= self.exported
        return replay

    def replay(self, recording, **hello):
        arguments = (recording, self.counts, self.random, self.known.waits, self.known.ends)
        return Replay(self.daemon, *arguments, **hello)

    def choose(self):
        """A recording, and what to do in a session with it."""
        with_lists, any_call = map(self.known.least_changed, (self.known.lists, self.known.places))
        if any_call and self.random.random() < 0.5:
            names = with_lists if with_lists and self.random.random() < 0.5 else any_call
            recording, place = self.with_lists(names)
            return recording, lambda replay: (replay.all(place, more=0), replay.hostile_from(place))
        chance = self.random.random()
        if chance < 0.15:
            recording = self.random.choice(self.known.recipes)
            size = len(recording.calls)
            return recording, lambda replay: replay.repeat(0, size, target=None, times=20)
        if chance < 0.35:
            recording = self.random.choice(self.known.recordings)
            return recording, lambda replay: replay.all(len(recording.calls), broken=0.002)
        missing = sorted(self.calls.opcode, key=self.counts.share)
        name = self.random.choice(missing[:40])
        if name not in self.known.places or self.random.random() < 0.1:
            recording = self.random.choice(self.known.recordings)
            return recording, lambda replay: self.described(replay, name)
        if name in self.known.good and self.random.random() < 0.6:
            _, recording, place, first, last = self.known.good[name]
        else:
            # Where little lies before it.
            some = self.random.choices(self.known.places[name], k=self.random.choice((1, 4, 16)))
            recording, place = min(some, key=lambda each: each[1])
            first = max(0, place - self.random.choice((0, 1, 2, 4, 8, 16)))
            if self.random.random() < 0.5:
                first = self.origin(recording, place)
            last = place + 1 + self.random.choice((0, 0, 1, 2, 4, 8))
        last = min(last, len(recording.calls))
        return recording, lambda replay: self.part(replay, name, place, first, last)

    def with_lists(self, names):
        """Where one of these calls has some elements, and not much lies before it."""
        name = self.random.choice(names)
        self.known.tried[name] += 1
        changes = Changes(self.calls, self.random, "params_type")

        def key(each):
            opcode, context, body, bulk = each[0].calls[each[1]]
            numbers, _ = changes.counted((0, opcode, 0, context), body, bulk)
            return not any(numbers.values()), each[1]

        return min(self.random.choices(self.known.places[name], k=16), key=key)

    def origin(self, recording, place):
        """The call in which one of this call's ids or addresses appears first, if it is near."""
        named = [word for word in words(recording.calls[place][2])[1:] if word >= 1 << 32]
        if not named:
            return place
        word = struct.pack("<Q", self.random.choice(named))
        for at in range(max(0, place - NEARBY), place):
            if word in recording.calls[at][2] or word in recording.answers[at]:
                return at
        return place

    def described(self, replay, name):
        replay.all(self.random.randrange(len(replay.recording.calls)), more=0.01)
        replay.by_description(self.calls.by_name[name], times=60)

    def part(self, replay, name, place, first, last):
        """As long as it brings something."""
        replay.all(place + 1, more=0.02)
        before, sent, end = self.counts.succeeded[name], replay.sent, time.monotonic() + PATIENCE
        try:
            share = 1
            while share > 0 and time.monotonic() < end and self.counts.share(name) < 1:
                share = replay.repeat(first, last, place, times=5)
        finally:
            score = (self.counts.succeeded[name] - before) / max(1, replay.sent - sent)
            if score >= self.known.good.get(name, (0.0001,))[0]:
                self.known.good[name] = score, replay.recording, place, first, last
