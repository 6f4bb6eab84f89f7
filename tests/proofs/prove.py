# SPDX-License-Identifier: Apache-2.0
"""Proves the arithmetic of the fast paths by z3, over 64-bit numbers: prove.py REPOSITORY [PROOF...]

Each proof takes its expressions from the sources, so that a changed expression changes the proof. A wrong
change fails, and so does a change that moves an expression to an unknown place. Each proof also has *wrong*
variants of an expression, for which z3 must find a failing case. This shows that the claim is not empty.
"""
import pathlib
import re
import sys

import z3

from cpp_terms import number, term, truth

root = pathlib.Path(sys.argv[1]) / "pmr"
ALIGN, ARENA = "include/tidemark/core/detail/align.hpp", "include/tidemark/arena/arena.hpp"
STATE = "include/tidemark/arena/detail/arena_state.hpp"
GROWTH, CLASSES = "include/tidemark/arena/detail/arena_growth.hpp", "include/tidemark/core/detail/size_classes.hpp"
SIZE_MAX = 2**64 - 1


class failed(Exception):
    """One sentence: the claim that is not proved."""


def source(file, pattern):
    """Returns the groups, or the group, of the only match in a file."""
    text = re.sub(r"//[^\n]*", "", (root / file).read_text())
    text = re.sub(r"\((std::(?:min|max|numeric_limits<[^>]*>::max))\)", r"\1", text)  # written so because of macros
    text = re.sub(r"this->|state::", "", text)  # of a base that depends on a template parameter
    found = re.findall(pattern, text, re.S)
    if len(found) != 1:
        raise failed(f"'{pattern}' matches {len(found)} places of {file}, and should one")
    return found[0] if isinstance(found[0], tuple) else " ".join(found[0].split())


def value(name):
    return z3.BitVec(name, 64)


def is_power_of_two(x):
    return z3.And(x != 0, x & (x - 1) == 0)


def wide(x):
    return z3.ZeroExt(64, x)  # so that sums cannot wrap


def counterexample(given, claim, seconds=300):
    solver = z3.Solver()
    solver.set("timeout", 1000 * seconds)
    solver.add(given, z3.Not(claim))
    answer = solver.check()
    if answer == z3.unknown:
        raise failed(f"z3 does not know: {solver.reason_unknown()}")
    return solver.model() if answer == z3.sat else None


def prove(given, claim):
    found = counterexample(given, claim)
    if found is not None:
        raise failed(f"not true for {found}")


def refute(given, claim, what):
    if counterexample(given, claim) is None:
        raise failed(f"the claim holds for a wrong variant too ({what}), so it says too little")


# ---- functions of the sources, as terms ----------------------------------------------------------------------------

def _align_up_text():
    return source(ALIGN, r"align_up\([^)]*\) noexcept \{\s*return ([^;]*);")


def align_up(x, align, text=None):
    return term(text or _align_up_text(), value=x, align=align)


def block_bytes(bytes_, granule):
    text = source(STATE, r"block_bytes\(std::size_t bytes\) noexcept \{\s*return ([^;]*);")
    return term(text, bytes=bytes_, block_granule=granule, align_up=align_up)


def aligned_cursor(cursor, align, granule):
    condition, aligned, plain = source(STATE, r"aligned_cursor\(std::size_t align\) const noexcept \{\s*if \(([^)]*)\) "
                                              r"\[\[unlikely\]\]\s*return ([^;]*);\s*return ([^;]*);")
    names = {"align": align, "cursor_": cursor, "block_granule": granule, "align_up": align_up}
    return z3.If(term(condition, **names), term(aligned, **names), term(plain, **names))


def _max_fast_request():
    return term(source(STATE, r"max_fast_request = ([^;]*);"))


# ---- the proofs ----------------------------------------------------------------------------------------------------

def align_up_is_the_least_multiple_that_is_no_less():
    x, align, other = value("value"), value("align"), value("other")
    given = z3.And(is_power_of_two(align), z3.ULE(wide(x) + wide(align) - 1, SIZE_MAX))

    def claim(text):
        up = align_up(x, align, text)
        no_less = z3.And(z3.UGE(other, x), other & (align - 1) == 0)
        return z3.And(z3.UGE(up, x), up & (align - 1) == 0, z3.Implies(no_less, z3.UGE(other, up)))

    text = _align_up_text()
    prove(given, claim(text))
    refute(given, claim(text.replace("(align - 1)) &", "align) &")), "value + align")


def align_down_is_the_largest_multiple_that_is_no_more():
    x, align, other = value("value"), value("align"), value("other")
    text = source(ALIGN, r"align_down\([^)]*\) noexcept \{\s*return ([^;]*);")

    def claim(text):
        down = term(text, value=x, align=align)
        no_more = z3.And(z3.ULE(other, x), other & (align - 1) == 0)
        return z3.And(z3.ULE(down, x), down & (align - 1) == 0, z3.Implies(no_more, z3.ULE(other, down)))

    prove(is_power_of_two(align), claim(text))
    refute(is_power_of_two(align), claim(text.replace("~(align - 1)", "~align")), "value & ~align")


def sums_saturate():
    a, b = value("a"), value("b")
    text = source(ALIGN, r"add_saturating\([^)]*\) noexcept \{\s*return ([^;]*);")

    def claim(text):
        exact = wide(a) + wide(b)
        return wide(term(text, a=a, b=b)) == z3.If(z3.ULE(exact, SIZE_MAX), exact, z3.BitVecVal(SIZE_MAX, 128))

    prove(z3.BoolVal(True), claim(text))
    refute(z3.BoolVal(True), claim(text.replace(">", ">=", 1).replace("- b", "- b - 1")), "one too early or late")


def products_of_arrays_saturate():
    """`multiply_saturating(n, sizeof(T))`, as `push_array` calls it: for every n, for elements of 1 to 4,096
    bytes and some larger ones. (z3 does not end for all pairs: a product of two unknowns.)"""
    n = value("n")
    text = source(ALIGN, r"multiply_saturating\([^)]*\) noexcept \{\s*return ([^;]*);")
    called = source("include/tidemark/arena/arena_push.hpp", r"array_bytes\(std::size_t n\) noexcept \{\s*return ([^;]*);")
    if called != "detail::multiply_saturating(n, sizeof(T))":
        raise failed(f"array_bytes is '{called}' now")

    def claim(text, size):
        element = z3.BitVecVal(size, 64)
        exact = wide(n) * wide(element)
        return wide(term(text, a=n, b=element)) == z3.If(z3.ULE(exact, SIZE_MAX), exact, z3.BitVecVal(SIZE_MAX, 128))

    for size in [*range(0, 65), *(2**k + d for k in range(7, 64, 3) for d in (-1, 0, 1)), 4095, 4096, SIZE_MAX]:
        prove(z3.BoolVal(True), claim(text, size))
    refute(z3.BoolVal(True), claim(text.replace("b != 0 && a >", "b != 0 && a - 1 >"), 24), "one element too many")


def fast_path(bytes_, align, cursor, end, granule, text=None):
    """Returns the condition of the fast path of `allocate`, and the block."""
    sizes, room = source(ARENA, r"if \(([^;{(]*max_fast_request[^{]*)\) \[\[likely\]\] \{\s*const std::uintptr_t block = "
                                r"aligned_cursor\(align\);\s*if \(([^;]*?) && chunk_->marks\.has_room\(\)\) \[\[likely\]\]")
    block = aligned_cursor(cursor, align, granule)
    names = {"bytes": bytes_, "align": align, "max_fast_request": _max_fast_request(), "block": block, "end_": end,
             "block_bytes": lambda of: block_bytes(of, granule)}
    return z3.And(term(text or sizes, **names), term(room, **names)), block


def the_bump_path_stays_in_its_chunk():
    """For every request, position and end of a chunk: the block lies before the end and after the position,
    is aligned and large enough, its address differs from the next one, and the position stays a multiple of
    the granule."""
    bytes_, align, cursor, end = map(value, ("bytes", "align", "cursor", "end"))
    # As reservations are refused that end later (reserve_chunk).
    limit = source(GROWTH, r"constexpr std::uintptr_t last = ([^;]*);")
    last = term(limit.replace("std::numeric_limits<std::uintptr_t>::max()", str(SIZE_MAX)), max_fast_request=_max_fast_request())
    for granule_bytes in (1, 16):  # of memory that a host must not touch, and of memory that it may
        granule = z3.BitVecVal(granule_bytes, 64)
        given = z3.And(is_power_of_two(align), z3.ULE(cursor, end), z3.ULE(end, last), cursor & (granule - 1) == 0, cursor != 0)

        def claim(text=None):
            taken, block = fast_path(bytes_, align, cursor, end, granule, text)
            size = block_bytes(bytes_, granule)
            after = term(source(STATE, r"void\* bump\([^)]*\) noexcept \{.*?cursor_ = ([^;]*);"),
                         block=block, bytes=bytes_, block_bytes=lambda of: block_bytes(of, granule))
            return z3.Implies(taken, z3.And(
                z3.UGE(block, cursor), block & (align - 1) == 0, z3.ULE(wide(block) + wide(size), wide(end)), z3.UGE(size, bytes_),
                z3.UGT(after, block), z3.ULE(after, end), after & (granule - 1) == 0))

        prove(given, claim())
        refute(given, claim("align <= max_fast_request"), "sizes of any length")


def the_next_chunk_is_entered_only_with_room():
    """`allocate_beyond`: a block at the beginning of a kept chunk lies in its committed part for every
    request, even if the rounded size wraps to 0."""
    condition = source(GROWTH, r"void\* arena_state<AddressSpace>::allocate_beyond\([^{]*\{.*?if \((align <= max_crossing_align_.*?)\) \[\[likely\]\]")
    room = re.search(r"left\.end - cursor_ < size", condition), re.search(r"size <= next->committed - next->begin", condition)
    if not all(room):
        raise failed(f"allocate_beyond asks '{condition}' now")
    bytes_, cursor, end, begin, committed = map(value, ("bytes", "cursor", "end", "begin", "committed"))
    granule = z3.BitVecVal(16, 64)
    size = block_bytes(bytes_, granule)
    names = {"left__end": end, "cursor_": cursor, "size": size, "next__committed": committed, "next__begin": begin}
    given = z3.And(z3.ULE(cursor, end), z3.ULE(begin, committed), z3.ULE(committed, SIZE_MAX - 2**32))

    def claim(*parts):
        taken = z3.And(*(truth(term(part, **names)) for part in parts))
        return z3.Implies(taken, z3.And(z3.UGE(size, bytes_), size != 0, z3.ULE(wide(begin) + wide(size), wide(committed))))

    prove(given, claim(room[0][0], room[1][0]))
    refute(given, claim(room[1][0]), "without a look at the room that is left")


def positions_rise_over_chunks():
    """`position_in` continues from chunk to chunk: the later of two cursors has the larger position, and the
    first position of a chunk is the position at which the previous chunk was left."""
    text = source(STATE, r"position_in\([^)]*\) noexcept \{\s*return ([^;]*);")
    entered = source(GROWTH, r"next->base = ([^;]*);\s*enter_at\(\*next, next->begin, false\);\s*return bump")
    if entered != "position":
        raise failed(f"a chunk's base is '{entered}' now")
    base, begin, used, more, next_begin, next_used = map(value, ("base", "begin", "used", "more", "next_begin", "next_used"))
    cursor, later, next_cursor = begin + used, begin + more, next_begin + next_used  # z3 takes longer for differences

    def position(base, begin, cursor, text=text):
        return term(text, chunk__base=base, chunk__begin=begin, cursor=cursor)

    given = z3.And(z3.ULE(begin, cursor), z3.ULE(cursor, later), z3.ULE(next_begin, next_cursor),
                   z3.ULE(base, 2**62), z3.ULE(later - begin, 2**62), z3.ULE(next_cursor - next_begin, 2**62))

    def claim(text):
        left_at, at_later = position(base, begin, cursor, text), position(base, begin, later, text)
        return z3.And(z3.ULE(left_at, at_later), z3.Implies(z3.ULT(cursor, later), z3.ULT(left_at, at_later)),
                      position(left_at, next_begin, next_begin, text) == left_at,
                      z3.ULE(left_at, position(left_at, next_begin, next_cursor, text)))

    prove(given, claim(text))
    refute(given, claim(text.replace("- chunk.begin", "")), "addresses in place of what is used of a chunk")


def a_looked_up_class_serves_size_and_alignment():
    """The table of size classes is indexed by `last_offset(bytes, align) / granule_bytes`, for n = (entry +
    1) * granule_bytes bytes (fill_table). n is the least size that is a multiple of 8, has room for the
    request, and is aligned for it. Any block that serves the request is as large, and a block of n bytes
    serves it."""
    bytes_, align, other = value("bytes"), value("align"), value("other")
    last_text = source(CLASSES, r"last_offset\(std::size_t bytes, std::size_t align\) noexcept \{\s*return ([^;]*);")
    entry_text = source(CLASSES, r"index_at\(std::size_t last\) const noexcept \{\s*return table_\[([^\]]*)\];")
    size_text = source("src/core/size_classes.cpp", r"for \(std::size_t i = 0; i < entries; \+\+i\) \{\s*const std::size_t bytes = ([^;]*);")
    granule = term(source(CLASSES, r"granule_bytes = (\d+);"))
    given = z3.And(is_power_of_two(align), z3.ULE(align, 256), z3.UGE(bytes_, 1), z3.ULE(bytes_, 2**14))

    def claim(last_text):
        last = term(last_text, bytes=bytes_, align=align)
        n = term(size_text, i=term(entry_text, last=last, granule_bytes=granule), granule_bytes=granule)
        serves = z3.And(z3.UGE(other, bytes_), other & (align - 1) == 0, z3.URem(other, granule) == 0, z3.ULE(other, 2**15))
        return z3.And(z3.UGE(n, bytes_), n & (align - 1) == 0, z3.Implies(serves, z3.UGE(other, n)))

    prove(given, claim(last_text))
    refute(given, claim(last_text.replace("bytes - 1", "bytes")), "bytes in place of bytes - 1")


def a_block_is_aligned_as_its_size_is():
    """`alignment_of(bytes)` is the largest power of two that divides the size, up to `max_alignment`. Blocks
    of a slab with this alignment therefore lie at multiples of it."""
    bytes_, index, base, power = map(value, ("bytes", "index", "base", "power"))
    text, limit = source(CLASSES, r"alignment_of\(std::size_t bytes\) noexcept \{\s*return std::min\(([^;]*), (max_alignment)\);")
    most = term(source(CLASSES, r"max_alignment = (\d+);"))

    def alignment_by(text):
        least = term(text, bytes=bytes_)
        return z3.If(z3.ULT(least, most), least, most)

    def claim(text):
        alignment = alignment_by(text)
        divides = z3.And(is_power_of_two(power), z3.ULE(power, most), bytes_ & (power - 1) == 0)
        return z3.And(is_power_of_two(alignment), z3.ULE(alignment, most), bytes_ & (alignment - 1) == 0,
                      z3.Implies(divides, z3.ULE(power, alignment)))

    alignment = alignment_by(text)
    prove(bytes_ != 0, claim(text))
    refute(bytes_ != 0, claim(text.replace("~bytes + 1", "~bytes + 2")), "another number than the lowest bit")
    for power_of_two in (8, 16, 32, 64, 128, 256):  # which of them it is; only the low bits count
        low, mask = (lambda x: z3.Extract(8, 0, x)), power_of_two - 1
        prove(z3.And(alignment == power_of_two, base & mask == 0), (low(base) + low(index) * low(bytes_)) & mask == 0)


PROOFS = [align_up_is_the_least_multiple_that_is_no_less, align_down_is_the_largest_multiple_that_is_no_more, sums_saturate,
          products_of_arrays_saturate, the_bump_path_stays_in_its_chunk, the_next_chunk_is_entered_only_with_room,
          positions_rise_over_chunks, a_looked_up_class_serves_size_and_alignment, a_block_is_aligned_as_its_size_is]


def _main():
    chosen = [proof for proof in PROOFS if len(sys.argv) == 2 or proof.__name__ in sys.argv[2:]]
    failures = 0
    for proof in chosen:
        try:
            proof()
            print(f"proved: {proof.__name__}", flush=True)
        except failed as sentence:
            failures += 1
            print(f"FAILED: {proof.__name__}: {sentence}", flush=True)
    sys.exit(1 if failures or not chosen else 0)


if __name__ == "__main__":
    _main()
