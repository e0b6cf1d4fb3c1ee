"""Sequences by which a client tries to get more than is its own: each takes something by a way that
limits could forget, in the form of recordings, which are made again whole, in part and changed."""

import hashlib
import struct

from calls import PTX
from recipes import MEMORY, Recipe

MI = 1 << 20
HEAP, PRINTF, STACK = 2, 1, 0  # CUlimit
RELEASE_THRESHOLD = 4
TICKET = struct.pack("<IHH", 0x74736766, 1, 2)  # how an exported handle begins


def put(recipe, text, upload, bytes_said=None):
    """An image; how many bytes are said that it has."""
    digest = hashlib.sha256(text).digest()
    more = dict(totalBytes=bytes_said or len(text), pieceBytes=len(text), upload=upload)
    recipe.call("fgImagePut", text, hash=digest, **more)
    return digest


def kernel(parameters, body="", outside=""):
    given = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    head = ".version 7.0\n.target sm_80\n.address_size 64\n"
    return f"{head}{outside}.visible .entry k({given})\n{{\n{body}ret;\n}}\n".encode()


def places_of_the_worker(recipe):
    """Where it has something mapped, by halves."""
    address, size = 0x550000000000, 1 << 34
    while size >= 4096:
        recipe.call("fgHostReserve", address=address, bytes=size)
        recipe.call("fgHostUnmap", address=address)
        address, size = address + size // 2 // 4096 * 4096, size // 8


def host_memory(recipe):
    for number, size in enumerate((64 * MI, 300 * MI, 1 << 34, (1 << 47) - 4096)):
        address = 0x200000000000 + (number << 36)
        recipe.call("fgHostMap", address=address, bytes=size)
        recipe.call("cuMemsetD8Async", dstDevice=address, uc=1, n=min(size, 64 * MI))
    recipe.call("cuCtxSynchronize")


def variables_of_modules(recipe):
    for number in range(4):
        text = kernel(0, outside=f".global .align 4 .b8 v[{100 * MI + number}];\n")
        digest = put(recipe, text, number + 1)
        recipe.call("fgImageUploaded", upload=number + 1)
        recipe.call("fgModuleLoad", hash=digest, module=recipe.new("module"))


def limits_of_a_context(recipe):
    for limit, value in ((HEAP, 100 * MI), (PRINTF, 100 * MI), (STACK, 8192), (HEAP, 1 << 40)):
        recipe.call("cuCtxSetLimit", limit=limit, value=value)


def what_pools_keep(recipe):
    for _ in range(4):
        pool = recipe.pool()
        everything = struct.pack("<Q", (1 << 64) - 1)
        recipe.call("cuMemPoolSetAttribute", pool=pool, attr=RELEASE_THRESHOLD, value=everything)
        answer = dict(dptr=MEMORY)
        recipe.call("cuMemAllocFromPoolAsync", pool=pool, bytesize=200 * MI, answer=answer)
        recipe.call("cuMemFreeAsync", dptr=MEMORY)
        recipe.call("cuCtxSynchronize")


def frees_that_wait(recipe):
    stream = recipe.new("stream")
    recipe.call("fgStreamCreate", kind=0, stream=stream)
    recipe.call("cuMemAlloc_v2", answer=dict(dptr=MEMORY), bytesize=4096)
    recipe.call("cuStreamWaitValue32_v2", stream=stream, addr=MEMORY, value=1)
    for number in range(1, 5):
        at = MEMORY + (number << 32)
        recipe.call("cuMemAllocAsync", hStream=stream, bytesize=100 * MI, answer=dict(dptr=at))
        recipe.call("cuMemFreeAsync", dptr=at, hStream=stream)
    recipe.call("cuMemsetD8Async", dstDevice=MEMORY, uc=1, n=4)


def objects_without_end(recipe):
    for _ in range(200):
        recipe.call("cuEventCreate", phEvent=recipe.new("event"), flags=2)


def another_function_of_the_same_number(recipe):
    """It has more parameters than the one that was looked up."""
    few = put(recipe, kernel(8), 1)
    module, library = recipe.new("module"), recipe.new("library")
    function, other = recipe.new("function"), recipe.new("kernel")
    recipe.call("fgModuleLoad", hash=few, module=module)
    recipe.call("fgModuleFunction", module=module, name=b"k", function=function)
    recipe.call("cuModuleUnload", hmod=module)
    body = ".reg .u64 a;\nld.param.u64 a, [p399];\n"
    many = put(recipe, kernel(400, body), 2)
    recipe.call("fgLibraryLoad", hash=many, library=library)
    recipe.call("fgLibraryKernel", library=library, name=b"k", kernel=other)
    recipe.call("cuKernelGetFunction", pFunc=function, kernel=other)
    grid = dict(gridX=1, gridY=1, gridZ=1, blockX=1, blockY=1, blockZ=1)
    parameters = dict(parameterBytes=64, parameters=bytes(64))
    recipe.call("fgLaunch", function=function, **grid, **parameters)
    recipe.call("cuCtxSynchronize")


def uploads_that_never_end(recipe):
    for upload in range(1, 9):
        put(recipe, PTX + bytes([upload]), upload, bytes_said=64 * MI + upload)


def images_of_others(recipe):
    """By a hash alone; and bytes that have another hash than is said."""
    for number in range(4):
        digest = hashlib.sha256(PTX + bytes([number])).digest()
        recipe.call("fgModuleLoad", hash=digest, module=recipe.new("module"))
        recipe.call("fgImageGet", hash=digest, pieceBytes=4096)
    wrong = dict(hash=bytes(32), totalBytes=len(PTX), pieceBytes=len(PTX), upload=1)
    recipe.call("fgImagePut", PTX, **wrong)
    recipe.call("fgImageUploaded", upload=1)
    recipe.call("fgModuleLoad", hash=bytes(32), module=recipe.new("module"))


def loads_that_fail(recipe):
    name = "\n2026-01-01 00:00:00.000 info  daemon: event=ready\x1b[31m\u0085\u202e"
    for number in range(20):
        digest = put(recipe, kernel(0, f"call {name * 8}{number};\n"), number + 1)
        recipe.call("fgModuleLoad", hash=digest, module=recipe.new("module"))


def forged_tickets(recipe):
    for session in range(16):
        ticket = TICKET + bytes(16) + struct.pack("<Q", session << 40) + bytes(range(32))
        recipe.call("fgIpcOpenMemory", handle=ticket, flags=1)
        recipe.call("fgIpcOpenEvent", handle=ticket, event=recipe.new("event"))


def recordings(calls):
    kinds = (places_of_the_worker, host_memory, variables_of_modules, limits_of_a_context)
    kinds += (what_pools_keep, frees_that_wait, objects_without_end, uploads_that_never_end)
    kinds += (another_function_of_the_same_number, images_of_others, loads_that_fail)
    kinds += (forged_tickets,)
    made = [Recipe(calls) for _ in kinds]
    for recipe, of_kind in zip(made, kinds, strict=True):
        of_kind(recipe)
    return [recipe.recording for recipe in made]
