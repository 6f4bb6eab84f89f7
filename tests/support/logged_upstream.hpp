// SPDX-License-Identifier: Apache-2.0
// An upstream for the tests of the standard's rules: it records all requests, fails when configured to, and
// checks that it gets back exactly the blocks it returned.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <vector>

namespace tidemark::test {

/// The exception of a logged_upstream. Its own type identifies the thrower in a test.
struct upstream_refused {};

/// A request as an upstream sees it.
struct upstream_request {
  void* first;
  std::size_t bytes, align;
  friend bool operator==(upstream_request const&, upstream_request const&) = default;
};

class logged_upstream final : public std::pmr::memory_resource {
 public:
  ~logged_upstream() override { EXPECT_TRUE(held.empty()) << held.size() << " blocks were not deallocated"; }

  std::vector<upstream_request> asked;  ///< all that was served, in that order
  std::vector<upstream_request> held;   ///< the served requests that were not deallocated
  bool refuses = false;                 ///< whether it throws from now on

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (refuses || bytes > std::numeric_limits<std::ptrdiff_t>::max()) throw upstream_refused{};
    asked.push_back({std::pmr::new_delete_resource()->allocate(bytes, align), bytes, align});
    held.push_back(asked.back());
    return asked.back().first;
  }
  void do_deallocate(void* first, std::size_t bytes, std::size_t align) override {
    const auto found = std::ranges::find(held, upstream_request{first, bytes, align});
    ASSERT_NE(found, held.end()) << "got back what it did not give: " << bytes << " bytes";
    held.erase(found);
    std::pmr::new_delete_resource()->deallocate(first, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }
};

/// Makes a resource the default one as long as it lives.
class default_resource_scope {
 public:
  explicit default_resource_scope(std::pmr::memory_resource* resource)
      : before_{std::pmr::set_default_resource(resource)} {}
  default_resource_scope(default_resource_scope const&) = delete;
  default_resource_scope& operator=(default_resource_scope const&) = delete;
  ~default_resource_scope() { std::pmr::set_default_resource(before_); }

 private:
  std::pmr::memory_resource* before_;
};

[[nodiscard]] inline bool is_aligned(void const* block, std::size_t align) {
  return reinterpret_cast<std::uintptr_t>(block) % align == 0;
}

}  // namespace tidemark::test
