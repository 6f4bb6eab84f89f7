// SPDX-License-Identifier: Apache-2.0
/// @file
/// `rewind_history`: tells in O(log n), mostly O(1), whether an arena was rewound over a mark since it was
/// taken.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidemark::detail {

/// The rewinds of an arena that ended marks.
///
/// A mark (position p, serial s) is live as long as no later rewind went below p, that is
/// `p <= min{ r.position : r in rewinds, r.serial > s }`. Of the rewinds only the suffix minima matter, so
/// `rewinds_` is strictly increasing in `position` and in `serial`, and the first entry with a serial above s
/// holds that minimum. A rewind that ends no mark is not recorded; so there are at most as many entries as
/// there were marks at distinct positions below the current one, and in a loop, where positions recur, a few.
class rewind_history {
 public:
  /// The serial that a mark taken now carries.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }

  /// No live mark lies above this position.
  [[nodiscard]] std::size_t newest_mark() const noexcept { return newest_mark_; }

  /// A mark is taken. Makes room, so that `rewound_to` never needs any.
  /// @throws std::bad_alloc with nothing changed.
  void marked_at(std::size_t position) {
    if (rewinds_.size() == rewinds_.capacity()) make_room();
    newest_mark_ = (std::max)(newest_mark_, position);
  }

  /// The arena was rewound. Amortised O(1).
  void rewound_to(std::size_t position) noexcept {
    if (newest_mark_ <= position) return;
    newest_mark_ = position;
    while (!rewinds_.empty() && rewinds_.back().position >= position) rewinds_.pop_back();
    rewinds_.push_back({position, ++serial_});  // never reallocates: one entry a mark, see marked_at
  }

  /// Whether a mark is live. O(1) if no mark ended since it was taken.
  [[nodiscard]] bool is_live(std::size_t position, std::uint64_t serial) const noexcept {
    if (serial == serial_) return true;
    const auto later = std::ranges::upper_bound(rewinds_, serial, {}, &rewind::serial);
    return later == rewinds_.end() || position <= later->position;
  }

 private:
  struct rewind {
    std::size_t position;
    std::uint64_t serial;
  };

  // Not inlined, so that `expect_resource` sees whose allocation it is. Not cold: a batch across chunks, with a
  // mark before it, then takes six instructions more.
  [[gnu::noinline]] void make_room() { rewinds_.reserve(std::max<std::size_t>(8, 2 * rewinds_.size())); }

  std::vector<rewind> rewinds_;
  std::uint64_t serial_ = 0;
  std::size_t newest_mark_ = 0;
};

}  // namespace tidemark::detail
