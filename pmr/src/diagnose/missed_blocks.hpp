// SPDX-License-Identifier: Apache-2.0
/// @file
/// `missed_blocks`: the records of one open scope of `expect_resource`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <source_location>
#include <string>

#include <tidemark/diagnose/expect_resource.hpp>

#include "call_stack.hpp"
#include "code_symbols.hpp"

namespace tidemark::detail {

/// What a scope has counted, and the link to the thread's next outer scope.
///
/// Invariants: `blocks_` is the sum of `blocks` over `places_[0, place_count_)` and `further_`; `bytes_`
/// likewise; `reported_blocks_ <= blocks_`.
/// One thread at a time.
class missed_blocks {
 public:
  missed_blocks(std::pmr::memory_resource const* expected, char const* name) noexcept;

  /// Counts a block, unless it is the business of the expected or another resource.
  /// @param from the resource that served it; null: `operator new`
  void on_allocate(std::size_t bytes, std::pmr::memory_resource const* from,
                   call_stack const& stack) noexcept;

  [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// Blocks that were missed since the caller last looked.
  [[nodiscard]] std::uint64_t unseen_blocks() const noexcept { return blocks_ - seen_blocks_; }
  void mark_seen() noexcept { seen_blocks_ = blocks_; }

  /// @throws std::bad_alloc.
  [[nodiscard]] std::string report(bool default_resource_is_watched) const;
  /// Reports all as a violation.
  void report_violation() const noexcept;

  missed_blocks* outer = nullptr;  ///< the thread's next outer scope
  bool operator_new_is_watched = false;
  int exceptions_at_begin = 0;  ///< that were in flight

 private:
  struct counts {
    std::uint64_t blocks = 0, bytes = 0;
  };
  // Blocks that a report has in one entry.
  struct place {
    bool is_of_new = false;  // else of the default resource
    char const* label = "";
    std::source_location site{};  // NOLINT(readability-redundant-member-init): line() == 0: not known
    std::array<std::uintptr_t, expect_resource::max_frames> calls{};  // 0 behind the last
    counts missed;
  };
  // What is known of addresses of code: the name of each is looked up once.
  struct known_code {
    std::uintptr_t address = 0;
    code_owner owner{};
  };

  [[nodiscard]] code_owner owner_at(std::uintptr_t address) noexcept;
  [[nodiscard]] bool is_of_a_resource(call_stack const& stack) noexcept;
  void fill_calls(place& to, call_stack const& stack) noexcept;
  [[nodiscard]] counts& counts_of(place const& sought) noexcept;

  std::pmr::memory_resource const* expected_;
  std::uintptr_t expected_allocate_;  // where its do_allocate begins
  char const* name_;
  std::uint64_t blocks_ = 0, bytes_ = 0;
  std::uint64_t seen_blocks_ = 0;
  std::size_t place_count_ = 0;
  counts further_;  // at places for which there was no room
  std::array<place, expect_resource::max_places> places_;
  std::array<known_code, 1024> known_;
};

/// Calls `on_allocate` of the calling thread's scopes, unless an allowance lives.
/// @param from as there @param return_address of the function that allocates
void count_missed(std::size_t bytes, std::pmr::memory_resource const* from,
                  void const* return_address) noexcept;

/// Whether the `operator new` that this library calls is the watched one.
[[nodiscard]] bool is_operator_new_watched() noexcept;

}  // namespace tidemark::detail
