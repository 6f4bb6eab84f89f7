// SPDX-License-Identifier: Apache-2.0
/// @file Which blocks a resource has handed out, for resources that check what they get back. Owns its own
/// records only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <source_location>

namespace tidemark::detail {

/// A block that was handed out.
struct ledger_entry {
  std::size_t bytes = 0;  ///< as asked for
  std::size_t align = 0;  ///< as asked for
  /// where it was asked for; `line() == 0` where the caller did not say
  // The braces are not redundant: without them, initialisers that leave it out draw a warning.
  std::source_location site{};  // NOLINT(readability-redundant-member-init)
  char const* label = "";       ///< what the caller called it; lives as long as the ledger
  std::uint64_t number = 0;     ///< which request to its resource it was, from 1; 0 where nobody counts
};

/// The live blocks by address, and the addresses of those given back last. Tells a double free from a wrong
/// size, an interior pointer or a foreign one.
///
/// Its records come from `operator new`, never from a resource that is being checked. O(log blocks) a call.
/// One thread at a time.
class block_ledger {
 public:
  /// The last so many addresses given back are remembered, and up to as many before them.
  static constexpr std::size_t freed_max = std::size_t{1} << 15;

  using blocks = std::map<std::uintptr_t, ledger_entry>;

  /// A block was handed out. @throws std::bad_alloc, with nothing changed.
  void add(void const* block, ledger_entry const& entry);

  /// A block is being given back.
  /// @param kind, resource what resource it is, for the report: `pool 'step': double free of ...`
  /// @return what was recorded; nothing, after a report of `violation_kind::bad_deallocate`, if it may not be
  /// given back so: the block is then still recorded as it was.
  std::optional<ledger_entry> remove(char const* kind, char const* resource, void const* block,
                                     std::size_t bytes, std::size_t align) noexcept;

  /// Forgets all blocks.
  void clear() noexcept;

  /// The live blocks, by address.
  [[nodiscard]] blocks const& live() const noexcept { return live_; }

 private:
  blocks live_;
  // Given back, and not in live_: the newest, freed_max at most, and those that were the newest before, so that
  // the oldest go first and the ledger of a long run stays bounded.
  blocks freed_, freed_before_;
};

}  // namespace tidemark::detail
