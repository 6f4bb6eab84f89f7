# SPDX-License-Identifier: Apache-2.0
"""The planner of tidemark: places blocks with known lifetimes in little memory.

    import tidemark_plan

    made = tidemark_plan.plan(begin=[0, 1, 2], end=[2, 3, 4], size=[10, 20, 30])
    print(made.offsets, made.height, made.bound, made.optimal)

Arrays are any sequences of int, including NumPy arrays; NumPy is not needed. tidemark's
planner/docs/use.md describes the planner.
"""
from __future__ import annotations

import array
import ctypes
import operator
import os
import pathlib
import threading
import typing
from collections.abc import Callable, Iterable

__all__ = ["Plan", "Progress", "plan", "read_trace", "version"]

_ABI_VERSION = 1
_NONE = 2**64 - 1  # no limit, not fixed
_INVALID, _NO_MEMORY, _CANCELLED, _FAILED = 1, 2, 3, 4
_PROOFS = ("open", "at_bound", "proven")


class Plan(typing.NamedTuple):
    """Offsets of blocks. No two conflicting blocks share a byte."""

    offsets: list[int]  # bytes, in the order of the blocks
    height: int  # bytes of the memory that holds all blocks
    bound: int  # bytes: the largest live sum, or the end of a fixed block
    proven_bound: int  # bytes; the search proved that no plan is lower; bound <= proven_bound <= height
    proof: str  # "at_bound": height == bound; "proven": height == proven_bound > bound; "open"
    nodes: int  # blocks placed by the search, failed tries included
    seconds: float  # time taken

    @property
    def optimal(self) -> bool:
        """True if the plan is known to be the lowest. If False, a lower plan may exist."""
        return self.proof != "open"


class Progress(typing.NamedTuple):
    """The progress of a search."""

    height: int  # bytes, of the best plan so far; 0 before the first one
    bound: int  # bytes
    nodes: int  # blocks placed so far
    seconds: float  # since the search began
    proven_bound: int  # bytes; the search proved that no plan is lower; bound <= proven_bound


class _Blocks(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("count", ctypes.c_uint64), ("begin", ctypes.c_void_p),
                ("end", ctypes.c_void_p), ("size", ctypes.c_void_p), ("alignment", ctypes.c_void_p),
                ("fixed_offset", ctypes.c_void_p), ("conflict_count", ctypes.c_uint64), ("conflicts", ctypes.c_void_p)]


class _Progress(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "struct_size", "height", "lower_bound", "nodes", "elapsed_ns", "proven_bound")]


_on_progress = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Progress))


class _Options(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "struct_size", "alignment", "time_limit_ns", "node_limit", "capacity", "seed", "exact")]
    _fields_ += [("on_progress", _on_progress), ("context", ctypes.c_void_p)]


class _Result(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("struct_size", "height", "lower_bound", "proven_bound", "nodes", "elapsed_ns")]
    _fields_ += [("proof", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


def _load():
    path = os.environ.get("TIDEMARK_PLAN_LIBRARY") or pathlib.Path(__file__).with_name("libtidemark_plan.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"tidemark_plan: cannot load {path}: {error}; TIDEMARK_PLAN_LIBRARY may name it") from None
    if library.tidemark_plan_abi_version() != _ABI_VERSION:
        raise ImportError(f"tidemark_plan: {path} has version {library.tidemark_plan_abi_version()} of the interface, and "
                          f"this package needs {_ABI_VERSION}")
    library.tidemark_plan_version.restype = ctypes.c_char_p
    library.tidemark_plan_make.restype = ctypes.c_int32
    library.tidemark_plan_make.argtypes = [ctypes.POINTER(_Blocks), ctypes.POINTER(_Options), ctypes.c_void_p,
                                           ctypes.POINTER(_Result), ctypes.c_char_p, ctypes.c_size_t]
    return library


_library = _load()


def version() -> str:
    """Returns the version of tidemark of the loaded library."""
    return _library.tidemark_plan_version().decode()


def plan(begin: Iterable[int] | None = None, end: Iterable[int] | None = None, size: Iterable[int] = (), *,
         alignment: int | Iterable[int] = 1, fixed: Iterable[int | None] | None = None,
         conflicts: Iterable[tuple[int, int]] | None = None, time_limit: float | None = None, node_limit: int | None = None,
         capacity: int | None = None, seed: int = 0, exact: bool = True,
         progress: Callable[[Progress], object] | None = None) -> Plan:
    """Places blocks in as little memory as the search finds.

    Block i has `size[i]` bytes and is live from the moment `begin[i]` until just before `end[i]`. Blocks live
    at one moment share no byte. For several streams at once, `conflicts` lists the pairs of blocks that may
    be live together, counted from 0, in place of `begin` and `end`.

    alignment: one power of two for all offsets and the height, or one for the offset of each block.
    fixed: required offsets; None for a block whose offset the plan chooses.
    time_limit: seconds, after which the search ends with the best plan so far; 1 unless another limit is
        given. 0 keeps the plan of make_plan; math.inf is no limit.
    node_limit: ends the search after this number of placed blocks. Without a time limit the plan is then
        always the same.
    capacity: bytes; a plan of at most this size ends the search, which otherwise has no time limit unless
        given. If no plan fits, the search continues until its plan is known to be the lowest, possibly
        forever: `progress` can raise once `proven_bound` exceeds the capacity.
    seed: of the random choices.
    exact: if true, searches until no plan can be lower. If false, keeps each try short.
    progress: called with a `Progress` at each lower plan and at most every few milliseconds, on another
        thread. An exception from it ends the search and is raised here.

    Other threads run during the search. KeyboardInterrupt, or an exception of another signal handler, ends
    the search and propagates.

    Raises ValueError with a sentence that names the block for an impossible value, TypeError for a value that
    is not a number, sequence or function as required, and MemoryError.
    """
    if progress is not None and not callable(progress):
        raise TypeError(f"tidemark_plan: progress is {progress!r}, not a function")
    sizes = _numbers("size", size)
    count = len(sizes)
    blocks = _Blocks(struct_size=ctypes.sizeof(_Blocks), count=count)
    options = _Options(struct_size=ctypes.sizeof(_Options), alignment=1, seed=_number("seed", seed), exact=bool(exact),
                       time_limit_ns=_nanoseconds(time_limit, node_limit is not None or capacity is not None),
                       node_limit=_NONE if node_limit is None else _number("node_limit", node_limit),
                       capacity=0 if capacity is None else _number("capacity", capacity))
    if capacity is not None and options.capacity == 0:
        raise ValueError("tidemark_plan: capacity is 0, expected at least 1")
    blocks.arrays = []  # keeps the arrays alive as long as their addresses

    def place(name, values, per_block=True):
        if per_block and len(values) != count:
            raise ValueError(f"tidemark_plan: {name} has {len(values)} entries, and size has {count}")
        blocks.arrays.append(values)
        return values.buffer_info()[0]

    blocks.size = place("size", sizes)
    if conflicts is None:
        blocks.begin = place("begin", _numbers("begin", () if begin is None else begin))
        blocks.end = place("end", _numbers("end", () if end is None else end))
    elif begin is not None or end is not None:
        raise ValueError("tidemark_plan: begin and end cannot be combined with conflicts")
    else:
        pairs = _pairs(conflicts)
        blocks.conflict_count = len(pairs) // 2
        pairs.append(0)  # an empty array may have no address
        blocks.conflicts = place("conflicts", pairs, per_block=False)
    if hasattr(alignment, "__index__"):
        options.alignment = _number("alignment", alignment)
    elif hasattr(alignment, "__iter__") or hasattr(alignment, "__getitem__"):  # arrays of ctypes have no __iter__
        blocks.alignment = place("alignment", _numbers("alignment", alignment))
    else:
        raise TypeError(f"tidemark_plan: alignment is {alignment!r}, neither a whole number nor a sequence of whole numbers")
    if fixed is not None:
        blocks.fixed_offset = place("fixed", _numbers("fixed", fixed, none=_NONE))
    return _search(blocks, options, count, progress)


def read_trace(path: str | os.PathLike[str], step: int | None = None) -> dict[str, list[int]]:
    """Reads the blocks of a trace that tidemark's `trace_log` or `TIDEMARK_TRACE` wrote, as arguments of `plan`:

        made = tidemark_plan.plan(**tidemark_plan.read_trace("run.csv"))

    step: number of a step in the trace; None for the whole trace. Times are numbers of events. Blocks that
    outlive the step or the trace, and blocks from before the step, are left out.

    Raises OSError, or ValueError with file, line and reason for another format or a step without events.
    """
    begun, blocks, event, is_inside, has_events = {}, [], 0, step is None, False
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        for line, row in enumerate(file, 1):
            fields = row.rstrip("\r\n").split(",")
            try:
                op, id, size, _ = fields
                if line == 1 and fields != ["op", "id", "bytes", "thread"] or line > 1 and op not in tuple("afrpse"):
                    raise ValueError
                if op in ("s", "e") and int(id) == step:
                    is_inside = op == "s"
                elif op in ("a", "f"):
                    if op == "a" and is_inside:
                        begun[int(id)] = event, int(size)
                    elif is_inside and int(id) in begun:
                        begin, size = begun.pop(int(id))
                        blocks.append((begin, event, size))
                    event, has_events = event + 1, has_events or is_inside
            except ValueError:
                raise ValueError(f"tidemark_plan: {path}:{line}: this is not a row of a trace") from None
    if step is not None and not has_events:
        raise ValueError(f"tidemark_plan: {path}: no step {step} has events")
    blocks.sort()
    return {name: [block[i] for block in blocks] for i, name in enumerate(("begin", "end", "size"))}


def _search(blocks, options, count, progress):
    """Calls the library on another thread, because the thread that runs Python handles signals."""
    offsets = array.array("Q", bytes(8 * count))
    result = _Result(struct_size=ctypes.sizeof(_Result))
    message = ctypes.create_string_buffer(256)
    cancelled, ended = threading.Event(), threading.Event()
    raised = []
    status = []

    def report(_, now):
        if progress is not None and not cancelled.is_set():
            try:
                progress(Progress(now[0].height, now[0].lower_bound, now[0].nodes, now[0].elapsed_ns / 1e9, now[0].proven_bound))
            except BaseException as error:  # raised again in the calling thread
                raised.append(error)
                cancelled.set()
        return cancelled.is_set()

    options.on_progress = _on_progress(report)

    def call():
        try:
            status.append(_library.tidemark_plan_make(blocks, options, offsets.buffer_info()[0] if count else None, result,
                                                      message, len(message)))
        finally:
            ended.set()

    thread = threading.Thread(target=call, name="tidemark_plan")
    thread.start()
    try:
        ended.wait()  # after an interrupted join, Python considers the thread ended
    finally:
        cancelled.set()
        ended.wait()
        thread.join()
    if raised:
        raise raised[0]
    if status[0] == 0:
        return Plan(offsets.tolist(), result.height, result.lower_bound, result.proven_bound, _PROOFS[result.proof],
                    result.nodes, result.elapsed_ns / 1e9)
    sentence = f"tidemark_plan: {message.value.decode()}"
    raise {_INVALID: ValueError, _NO_MEMORY: MemoryError}.get(status[0], RuntimeError)(sentence)


def _number(name, value):
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"tidemark_plan: {name} is {value!r}, not a whole number") from None
    if not 0 <= number < 2**64:
        raise ValueError(f"tidemark_plan: {name} is {number}, not a number from 0 to 2^64 - 1")
    return number


def _enumerated(name, values, entries):
    try:
        return enumerate(values)
    except TypeError:
        raise TypeError(f"tidemark_plan: {name} is {values!r}, not a sequence of {entries}") from None


def _numbers(name, values, none=None):
    """Returns an array of 64-bit numbers, copied in one piece if the values are such an array."""
    try:
        view = memoryview(values)
        if none is None and view.format in ("Q", "L") and view.itemsize == 8 and view.ndim == 1:
            return array.array("Q", view.tobytes())
    except (TypeError, ValueError):
        pass
    numbers = array.array("Q")
    for i, value in _enumerated(name, values, "whole numbers"):
        if value is None and none is not None:
            numbers.append(none)
        else:
            number = _number(f"{name}[{i}]", value)
            if number == none:
                raise ValueError(f"tidemark_plan: {name}[{i}] is {number}, and no block may end above 2^62")
            numbers.append(number)
    return numbers


def _pairs(conflicts):
    numbers = array.array("Q")
    for i, pair in _enumerated("conflicts", conflicts, "pairs"):
        try:
            first, second = pair
        except (TypeError, ValueError):
            raise ValueError(f"tidemark_plan: conflicts[{i}] is {pair!r}, not a pair of blocks") from None
        numbers.append(_number(f"conflicts[{i}][0]", first))
        numbers.append(_number(f"conflicts[{i}][1]", second))
    return numbers


def _nanoseconds(seconds, has_other_limit):
    if seconds is None:
        return _NONE if has_other_limit else 10**9
    try:
        seconds = float(seconds)
    except (TypeError, ValueError):
        raise TypeError(f"tidemark_plan: time_limit is {seconds!r}, not a number of seconds") from None
    if not seconds >= 0:
        raise ValueError(f"tidemark_plan: time_limit is {seconds}, not a number of seconds")
    return int(min(seconds * 1e9, 2.0**63))
