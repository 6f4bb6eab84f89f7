// SPDX-License-Identifier: Apache-2.0
// Shared parts of the benchmark loops.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace tidemark::bench {

/// Keeps the compiler from optimizing an allocation away. (benchmark::DoNotOptimize would also write the
/// pointer to memory.)
inline void keep(void* block) { asm volatile("" : : "r"(block) : "memory"); }

/// Also writes the block's first byte, because untouched memory is useless.
inline void use(void* block) {
  *static_cast<char volatile*>(block) = 1;
  keep(block);
}

/// Hides the type of the resource from the compiler, as a container in another file would.
inline std::pmr::memory_resource* hidden(std::pmr::memory_resource* resource) {
  benchmark::DoNotOptimize(resource);
  return resource;
}

/// Sets the number of items per turn. Times are reported per item.
inline void count_items(benchmark::State& state, std::size_t a_turn) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(a_turn));
}

}  // namespace tidemark::bench
