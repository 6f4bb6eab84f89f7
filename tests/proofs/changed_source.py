# SPDX-License-Identifier: Apache-2.0
"""Tests that a changed expression fails its proof: changed_source.py REPOSITORY."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

repository = pathlib.Path(sys.argv[1])
prove = pathlib.Path(__file__).parent / "prove.py"
# A file, the replaced text, its replacement, the proof that must fail, and the beginning of its sentence.
CHANGES = [
    ("core/detail/align.hpp", "(value + (align - 1)) & ~(align - 1)", "(value + align) & ~(align - 1)",
     "align_up_is_the_least_multiple_that_is_no_less", "not true for"),
    ("core/detail/align.hpp", "value & ~(align - 1)", "value & ~align", "align_down_is_the_largest_multiple_that_is_no_more", "not true for"),
    ("core/detail/align.hpp", "a > (std::numeric_limits<std::size_t>::max)() - b", "a >= (std::numeric_limits<std::size_t>::max)() - b - 1",
     "sums_saturate", "not true for"),
    ("core/detail/align.hpp", "b != 0 && a > (std::numeric_limits<std::size_t>::max)() / b", "b != 0 && a >= (std::numeric_limits<std::size_t>::max)() / b",
     "products_of_arrays_saturate", "not true for"),
    ("arena/arena_push.hpp", "detail::multiply_saturating(n, sizeof(T))", "n * sizeof(T)", "products_of_arrays_saturate", "array_bytes is"),
    ("arena/arena.hpp", "block + this->block_bytes(bytes) <= this->end_", "block + bytes <= this->end_", "the_bump_path_stays_in_its_chunk", "not true for"),
    ("arena/arena.hpp", "bytes <= state::max_fast_request && align <= state::max_fast_request", "align <= state::max_fast_request",
     "the_bump_path_stays_in_its_chunk", "not true for"),
    ("arena/detail/arena_state.hpp", "return chunk.base + (cursor - chunk.begin)", "return chunk.base + cursor", "positions_rise_over_chunks", "not true for"),
    ("arena/detail/arena_growth.hpp", "left.end - cursor_ < size", "left.end - cursor_ <= size",
     "the_next_chunk_is_entered_only_with_room", "allocate_beyond asks"),
    ("core/detail/size_classes.hpp", "(bytes - 1) | (align - 1)", "bytes | (align - 1)", "a_looked_up_class_serves_size_and_alignment", "not true for"),
    ("core/detail/size_classes.hpp", "bytes & (~bytes + 1)", "bytes & ~(bytes + 1)", "a_block_is_aligned_as_its_size_is", "not true for"),
]
failures = []
with tempfile.TemporaryDirectory() as folder:
    for file, old, new, proof, why in CHANGES:
        shutil.rmtree(f"{folder}/pmr", ignore_errors=True)
        for part in "include/tidemark/core", "include/tidemark/arena", "src/core":
            shutil.copytree(repository / "pmr" / part, f"{folder}/pmr/{part}")
        changed = pathlib.Path(folder) / "pmr/include/tidemark" / file
        text = changed.read_text()
        if text.count(old) != 1:
            failures.append(f"'{old}' is {text.count(old)} times in {file}")
            continue
        changed.write_text(text.replace(old, new))
        done = subprocess.run([sys.executable, prove, folder, proof], capture_output=True, text=True)
        if done.returncode == 0 or f"FAILED: {proof}: {why}" not in done.stdout:
            failures.append(f"{file}: with '{new}' {proof} says '{done.stdout}{done.stderr}'")
print(f"{len(CHANGES)} changes, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures else 0)
