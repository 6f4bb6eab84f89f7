// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trap_log`: places of rewinds over trapped scopes, readable by the fault handler at any time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark::detail {

/// The calling functions, innermost first, then 0.
using rewind_place = std::array<std::uintptr_t, 12>;

/// The last rewinds of one arena over trapped scopes. One thread writes; any thread may read meanwhile, also
/// in a signal handler. An entry that is being written counts as missing. A reader that sees a new field also
/// sees the new version, because each field is released and acquired.
template <class Sync, std::size_t Entries, class Place>
class rewind_records {
 public:
  void add(std::uintptr_t first, std::uintptr_t last, Place const& by) noexcept {
    const std::uint64_t number = count_.load(std::memory_order_relaxed);
    entry& to = entries_[number % Entries];
    const std::uint32_t version = to.version.load(std::memory_order_relaxed);
    to.version.store(version + 1, std::memory_order_relaxed);
    to.begin.store(first, std::memory_order_release);
    to.end.store(last, std::memory_order_release);
    for (std::size_t i = 0; i < by.size(); ++i) to.place[i].store(by[i], std::memory_order_release);
    to.version.store(version + 2, std::memory_order_release);
    count_.store(number + 1, std::memory_order_release);
  }

  /// Finds the last rewind over an address. @return false, with `by` unspecified, if the rewind is no longer
  /// recorded
  [[nodiscard]] bool find(std::uintptr_t address, Place& by) const noexcept {
    const std::uint64_t count = count_.load(std::memory_order_acquire);
    for (std::uint64_t age = 1; age <= std::min<std::uint64_t>(count, Entries); ++age) {
      entry const& of = entries_[(count - age) % Entries];
      const std::uint32_t version = of.version.load(std::memory_order_acquire);
      const bool is_here = of.begin.load(std::memory_order_acquire) <= address &&
                           address < of.end.load(std::memory_order_acquire);
      if (!is_here) continue;
      for (std::size_t i = 0; i < by.size(); ++i) by[i] = of.place[i].load(std::memory_order_acquire);
      if (version % 2 == 0 && of.version.load(std::memory_order_relaxed) == version) return true;
    }
    return false;
  }

  /// Forgets all rewinds.
  void clear() noexcept { count_.store(0, std::memory_order_relaxed); }

 private:
  template <class T>
  using atomic = typename Sync::template atomic<T>;

  struct entry {
    atomic<std::uint32_t> version{0};  // odd during a write
    atomic<std::uintptr_t> begin{0};
    atomic<std::uintptr_t> end{0};
    std::array<atomic<std::uintptr_t>, std::tuple_size_v<Place>> place{};
  };

  atomic<std::uint64_t> count_{0};  // entries written so far
  std::array<entry, Entries> entries_{};
};

/// Data about one arena for the fault handler.
struct trap_log {
  using name_text = std::array<char, 64>;

  std::atomic<bool> is_in_use{false};    // an arena uses the log
  std::atomic<std::uintptr_t> begin{0};  // first address of the trapped scopes
  std::atomic<std::size_t> size{0};      // bytes of these addresses; 0: no region
  std::array<std::atomic<char>, std::tuple_size_v<name_text>> name{};  // a copy: the arena's name may be gone
  rewind_records<std_atomics, 256, rewind_place> rewinds;
  trap_log* next = nullptr;  // an older log; constant

  // Each field is released and acquired: a reader that sees another region's beginning sees its size or 0.
  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept {
    const std::size_t bytes = size.load(std::memory_order_acquire);
    return address - begin.load(std::memory_order_acquire) < bytes &&
           size.load(std::memory_order_relaxed) == bytes;
  }

  // Keeps `begin` if the region is empty, so that `begin` is never 0 with a nonzero size.
  void set_region(byte_range region) noexcept {
    size.store(0, std::memory_order_release);
    if (region.empty()) return;
    begin.store(region.begin, std::memory_order_release);
    size.store(region.size, std::memory_order_release);
  }

  void set_name(std::string_view text) noexcept {
    for (std::size_t i = 0; i < name.size(); ++i) {
      const bool has_letter = i < text.size() && i + 1 < name.size();
      name[i].store(has_letter ? text[i] : '\0', std::memory_order_release);
    }
  }

  [[nodiscard]] name_text copy_name() const noexcept {
    name_text text{};
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = name[i].load(std::memory_order_acquire);
    return text;
  }
};

/// Takes a log for an arena. @throws std::bad_alloc.
[[nodiscard]] trap_log& acquire_trap_log(char const* name);
/// Returns the log, which another arena may then take.
void release_trap_log(trap_log& log) noexcept;
/// Installs the handler for fault signals, until a fault is passed on to the program's earlier action. Does
/// nothing while it is installed. @throws std::bad_alloc, only at the first call.
void handle_faults();

}  // namespace tidemark::detail
