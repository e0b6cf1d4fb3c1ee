"""Calls that the conformance programs do not make, or hardly, in the form of recordings: what a
client would ask for in such a session. An exporter is another session of the same job."""

import hashlib
import struct

from calls import PTX
from mutations import Recording, lists

HASH = hashlib.sha256(PTX).digest()
# In place of what the server, or another session, will have said.
MEMORY, FROM_POOL, OPENED = 0x7A0000000000, 0x7A1000000000, 0x7A2000000000
EXPORTED = {
    name: struct.pack("<8Q", *(0x7B0000000000 + 64 * number + place for place in range(8)))
    for number, name in enumerate(("memory", "event", "pool", "pointer"))
}
ON_DEVICE, SECOND = struct.pack("<ii", 1, 0), 2  # the primary context of the second device
PINNED, BY_DESCRIPTOR = 1, 1
AMENDED, COPY = 5, 1 << 21  # how a copy tells of its end, and the id of one


class Recipe:
    """A session with a context, to which calls are added."""

    def __init__(self, calls):
        self.calls, self.recording, self.slots = calls, Recording(), 0
        self.call("fgPrimaryRetain", dev=0)

    def new(self, kind):
        self.slots += 1
        return self.calls.kinds[kind] << 50 | self.slots << 4

    def call(self, called, bulk=b"", answer=None, context=1, **values):
        """`answer`: its words, where later calls name them."""
        function = self.calls.by_name[called]
        body = self.calls.layouts.encode(function.params_type, values)
        self.recording.calls.append((self.calls.opcode[called], context, body, bulk))
        known = answer and self.calls.layouts.encode(function.results_type, answer)
        self.recording.answers.append(known or b"")

    def memory(self):
        self.call("cuMemAlloc_v2", answer=dict(dptr=MEMORY), bytesize=65536)

    def image(self):
        size = len(PTX)
        self.call("fgImagePut", PTX, hash=HASH, totalBytes=size, pieceBytes=size, upload=1)
        self.call("fgImageUploaded", upload=1)

    def pool(self, handle_types=0):
        pool = self.new("mempool")
        properties = struct.pack("<IIii", PINNED, handle_types, 1, 0) + bytes(72)
        self.call("cuMemPoolCreate", pool=pool, poolProps=properties)
        return pool


def of_modules(recipe):
    recipe.image()
    module, library, kernel = (recipe.new(kind) for kind in ("module", "library", "kernel"))
    recipe.call("fgModuleLoad", hash=HASH, module=module)
    recipe.call("cuModuleGetGlobal_v2", hmod=module, name=b"v")
    recipe.call("fgLibraryLoad", hash=HASH, library=library)
    recipe.call("cuLibraryGetGlobal", library=library, name=b"v")
    recipe.call("cuLibraryGetManaged", library=library, name=b"m")
    recipe.call("fgLibraryKernel", library=library, name=b"k", kernel=kernel)
    recipe.call("cuKernelGetFunction", kernel=kernel, pFunc=recipe.new("function"))


def of_devices(recipe):
    recipe.call("fgPrimaryRetain", dev=1)
    both = dict(srcDevice=0, dstDevice=1)
    recipe.call("cuDeviceGetP2PAttribute", attrib=1, **both)
    operations = dict(count=2, operations=struct.pack("<ii", 0, 1))
    recipe.call("cuDeviceGetP2PAtomicCapabilities", **both, **operations)
    recipe.call("cuDeviceGetHostAtomicCapabilities", dev=0, **operations)
    recipe.call("cuCtxEnablePeerAccess", peerContext=SECOND)
    recipe.call("cuCtxDisablePeerAccess", peerContext=SECOND)
    pool = recipe.pool()
    recipe.call("cuMemPoolSetAccess", pool=pool, count=1, map=struct.pack("<iii", 1, 1, 3))
    recipe.call("cuMemPoolGetAccess", memPool=pool, location=ON_DEVICE)


def of_streams(recipe):
    recipe.memory()
    stream = recipe.new("stream")
    recipe.call("fgStreamCreate", kind=0, stream=stream)
    recipe.call("cuStreamWriteValue32_v2", stream=stream, addr=MEMORY, value=1)
    recipe.call("cuStreamWriteValue64_v2", stream=stream, addr=MEMORY + 8, value=1)
    recipe.call("cuStreamWaitValue32_v2", stream=stream, addr=MEMORY, value=1)
    recipe.call("cuStreamWaitValue64_v2", stream=stream, addr=MEMORY + 8, value=1)
    write = struct.pack("<iiQQIIQQ", 2, 0, MEMORY, 1, 0, 0, 0, 0)[:48]
    recipe.call("cuStreamBatchMemOp_v2", stream=stream, count=1, paramArray=write)
    recipe.call("fgMeetDeliveries", id=1 << 20, stream=stream)


def of_arrays(recipe):
    array = recipe.new("array")
    planar = struct.pack("<QQQIII4x", 16, 16, 0, 0xB0, 3, 0)
    recipe.call("cuArray3DCreate_v2", pHandle=array, pAllocateArray=planar)
    recipe.call("cuArrayGetPlane", pPlaneArray=recipe.new("array"), hArray=array, planeIdx=0)


def of_links(recipe):
    recipe.image()
    state = recipe.new("linkstate")
    recipe.call("fgLinkCreate", state=state)
    recipe.call("fgLinkAdd", state=state, type=1, hash=HASH, name=b"x")
    linked = bytes(range(1, 33))
    logs = dict(infoLog=b"", errorLog=b"")
    recipe.call("fgLinkComplete", state=state, answer=dict(imageHash=linked, **logs))
    recipe.call("fgImageGet", hash=linked, pieceBytes=64)
    recipe.call("fgLinkDestroy", state=state)


def of_timelines(recipe):
    recipe.call("fgTimelineStart", records=100)
    recipe.call("fgTimelineTake", mostBytes=65536)


def of_questions(recipe):
    recipe.call("fgDirectProbe")
    recipe.call("fgTimelineClock")


def of_pieces(recipe):
    recipe.call("fgGraphPiece", bytes(64), exec=recipe.new("graphexec"), pieceBytes=64)
    recipe.memory()
    copy = struct.pack("<6Q", 1 | AMENDED << 16, MEMORY, 64, 1, 1, COPY)
    recipe.call("fgCopy", bytes(64), copy=copy, copyBytes=len(copy), srcBytes=64)
    recipe.call("fgAmend", bytes(64), id=COPY, bytes=64)


def of_exports(recipe):
    recipe.call("fgIpcOpenMemory", handle=EXPORTED["memory"], flags=1, answer=dict(address=OPENED))
    recipe.call("fgIpcCloseMemory", address=OPENED)
    recipe.call("fgIpcOpenEvent", handle=EXPORTED["event"], event=recipe.new("event"))
    pool = recipe.new("mempool")
    recipe.call("fgPoolImport", handle=EXPORTED["pool"], pool=pool)
    recipe.call("fgPoolImportMemory", pool=pool, data=EXPORTED["pointer"])


def recordings(calls):
    """Of these, and of one whose session has an exporter."""
    kinds = (of_modules, of_devices, of_streams, of_arrays, of_links, of_timelines, of_questions)
    kinds += (of_pieces, of_exports)
    made = [Recipe(calls) for _ in kinds]
    for recipe, of_kind in zip(made, kinds, strict=True):
        of_kind(recipe)
    return [recipe.recording for recipe in made[:-1]], made[-1].recording


def exporter(calls):
    recipe = Recipe(calls)
    event = recipe.new("event")
    recipe.memory()
    recipe.call("cuEventCreate", phEvent=event, flags=6)
    pool = recipe.pool(BY_DESCRIPTOR)
    taken = dict(answer=dict(dptr=FROM_POOL), bytesize=4096)
    recipe.call("cuMemAllocFromPoolAsync", pool=pool, **taken)
    recipe.call("cuIpcGetMemHandle", dptr=MEMORY)
    recipe.call("cuIpcGetEventHandle", event=event)
    recipe.call("cuMemPoolExportToShareableHandle", pool=pool, handleType=BY_DESCRIPTOR)
    recipe.call("cuMemPoolExportPointer", ptr=FROM_POOL)
    return recipe.recording


def export(replay):
    """Makes all of it; what the exported things are called in recordings, and in truth."""
    replay.all(len(replay.recording.calls), more=0)
    names = {}
    for exported, place in zip(EXPORTED.values(), range(-4, 0), strict=True):
        opcode, context, body, bulk = replay.recording.calls[place]
        answer = replay.send(opcode, context, replay.names.translate(body), bulk)
        function = replay.calls.of_opcode[opcode]
        for _, _, first, size in lists(replay.calls.layouts, function.results_type, answer or b""):
            true = struct.unpack(f"<{size // 8}Q", answer[first : first + size // 8 * 8])
            names |= dict(zip(struct.unpack("<8Q", exported), true, strict=True))
    return names
