// SPDX-License-Identifier: Apache-2.0
// A registrar for tests: it counts calls, fails the n-th call, and checks that exactly the registered ranges
// are deregistered.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

#include <tidemark/core/registered_memory.hpp>

#include "recording_supply.hpp"

namespace tidemark::test {

/// The ranges of a registrar. They outlive the registrar, which an arena owns.
class registrations : public supply {
 public:
  ~registrations() { EXPECT_TRUE(ranges_.empty()) << ranges_.size() << " ranges were not deregistered"; }

  std::size_t registered = 0, deregistered = 0;  ///< so far
  std::size_t lost = 0;                          ///< ranges that were never to be deregistered

  bool add(byte_range range) noexcept {
    if (this_one_fails()) return false;
    const auto after = ranges_.lower_bound(range.begin);
    EXPECT_TRUE(after == ranges_.end() || range.end() <= after->first) << "registered twice";
    EXPECT_TRUE(after == ranges_.begin() || std::prev(after)->first + std::prev(after)->second <= range.begin)
        << "registered twice";
    ranges_.emplace(range.begin, range.size);
    outstanding += range.size;
    ++registered;
    return true;
  }
  bool remove(byte_range range) noexcept {
    if (this_one_fails()) return false;
    const auto found = ranges_.find(range.begin);
    if (found == ranges_.end() || found->second != range.size) {
      ADD_FAILURE() << "deregistered what was not registered";
      return false;
    }
    ranges_.erase(found);
    outstanding -= range.size;
    ++deregistered;
    return true;
  }
  /// Returns true if one registration covers all of a block.
  [[nodiscard]] bool has(void const* block, std::size_t bytes) const {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    const auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return false;
    auto const& [begin, size] = *std::prev(after);
    return address + bytes <= begin + size;
  }
  /// Forgets deliberately lost registrations.
  void remove_all() {
    lost += ranges_.size();
    ranges_.clear();
  }

 private:
  std::map<std::uintptr_t, std::size_t> ranges_;
};

/// @tparam Touch whether to read and write the memory in each call, because it must be there
template <bool Touch = true>
class recording_registrar {
 public:
  explicit recording_registrar(registrations& known) : known_{&known} {}

  bool on_commit(byte_range range) noexcept {
    touch(range);
    return known_->add(range);
  }
  bool on_decommit(byte_range range) noexcept {
    touch(range);
    return known_->remove(range);
  }
  [[nodiscard]] char const* refusal() const noexcept { return "the registrar has no room"; }

 private:
  static void touch(byte_range range) noexcept {
    if constexpr (Touch) {
      detail::unpoison(range.begin, range.size);
      auto* const bytes = static_cast<unsigned char volatile*>(range.data());
      bytes[0] = bytes[0];
      bytes[range.size - 1] = bytes[range.size - 1];
    }
  }
  registrations* known_;
};

static_assert(memory_registrar<recording_registrar<>>);

}  // namespace tidemark::test
