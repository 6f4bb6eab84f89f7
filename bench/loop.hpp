// SPDX-License-Identifier: Apache-2.0
// What the loops of benchmarks share.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace tidemark::bench {

/// Keeps the compiler from seeing through an allocation. (benchmark::DoNotOptimize would write the pointer to
/// memory besides.)
inline void keep(void* block) { asm volatile("" : : "r"(block) : "memory"); }

/// Besides, writes the block's first byte, because untouched memory is of no use.
inline void use(void* block) {
  *static_cast<char volatile*>(block) = 1;
  keep(block);
}

/// The resource, of whose type the compiler knows nothing, as it would not in a container elsewhere.
inline std::pmr::memory_resource* hidden(std::pmr::memory_resource* resource) {
  benchmark::DoNotOptimize(resource);
  return resource;
}

/// The time of a benchmark is given per item, and each turn has this many.
inline void count_items(benchmark::State& state, std::size_t a_turn) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(a_turn));
}

}  // namespace tidemark::bench
