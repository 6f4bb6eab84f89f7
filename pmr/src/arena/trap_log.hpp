// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trap_log`: where trapped scopes were rewound, as the handler of a fault may read at any time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tidemark/core/byte_range.hpp>

namespace tidemark::detail {

/// The functions that called, the innermost first; then 0.
using rewind_place = std::array<std::uintptr_t, 12>;

/// The last rewinds of one arena over trapped scopes. One thread writes; any may read meanwhile, also in a signal
/// handler: an entry that is being written counts as missing.
struct trap_log {
  static constexpr std::size_t max_entries = 256;

  struct entry {
    std::atomic<std::uint32_t> version{0};  // odd while it is written
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};
    std::array<std::atomic<std::uintptr_t>, std::tuple_size_v<rewind_place>> place{};
  };

  std::atomic<bool> is_taken{false};       // by an arena
  std::atomic<char const*> name{nullptr};  // the arena's
  std::atomic<std::uintptr_t> begin{0};    // of the addresses of its trapped scopes
  std::atomic<std::size_t> size{0};        // 0: there are none
  std::atomic<std::uint64_t> rewinds{0};   // entries written so far
  std::array<entry, max_entries> entries;
  trap_log* next = nullptr;  // made before; never changes

  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept {
    return address - begin.load(std::memory_order_relaxed) < size.load(std::memory_order_acquire);
  }

  void set_region(byte_range region) noexcept {
    size.store(0, std::memory_order_release);
    begin.store(region.begin, std::memory_order_relaxed);
    size.store(region.size, std::memory_order_release);
  }

  void add(std::uintptr_t first, std::uintptr_t last, rewind_place const& by) noexcept {
    const std::uint64_t number = rewinds.load(std::memory_order_relaxed);
    entry& to = entries[number % max_entries];
    to.version.fetch_add(1, std::memory_order_acq_rel);
    to.begin.store(first, std::memory_order_relaxed);
    to.end.store(last, std::memory_order_relaxed);
    for (std::size_t i = 0; i < by.size(); ++i) to.place[i].store(by[i], std::memory_order_relaxed);
    to.version.fetch_add(1, std::memory_order_release);
    rewinds.store(number + 1, std::memory_order_release);
  }

  /// Who rewound last over an address. @return false if that is not in the log any more
  [[nodiscard]] bool find(std::uintptr_t address, rewind_place& by) const noexcept {
    const std::uint64_t count = rewinds.load(std::memory_order_acquire);
    for (std::uint64_t age = 1; age <= std::min<std::uint64_t>(count, max_entries); ++age) {
      entry const& of = entries[(count - age) % max_entries];
      const std::uint32_t version = of.version.load(std::memory_order_acquire);
      const bool is_here = of.begin.load(std::memory_order_relaxed) <= address &&
                           address < of.end.load(std::memory_order_relaxed);
      if (!is_here) continue;
      for (std::size_t i = 0; i < by.size(); ++i) by[i] = of.place[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (version % 2 == 0 && of.version.load(std::memory_order_relaxed) == version) return true;
    }
    return false;
  }
};

/// A log for an arena. @throws std::bad_alloc.
[[nodiscard]] trap_log& take_trap_log(char const* name);
/// Another arena may take it.
void give_trap_log_back(trap_log& log) noexcept;
/// Handles the signals of faults from now on. Calling it again does nothing.
void handle_faults() noexcept;

}  // namespace tidemark::detail
