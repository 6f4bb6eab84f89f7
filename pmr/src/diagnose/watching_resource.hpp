// SPDX-License-Identifier: Apache-2.0
/// @file
/// What stands in the place of the default resource while a scope of `expect_resource` is open.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace tidemark::detail {

/// Passes every request on to what was the default resource, and counts in the scopes of the calling thread.
///
/// There is one for each resource that was ever the default, and none is destroyed: containers keep its
/// address beyond the scope, and so it may have no state that ends with one. Thread-safety: as the upstream.
class watching_resource final : public std::pmr::memory_resource {
 public:
  explicit watching_resource(std::pmr::memory_resource* upstream, watching_resource* next) noexcept
      : upstream_{upstream}, next_{next} {}

  [[nodiscard]] std::pmr::memory_resource* upstream() const noexcept { return upstream_; }
  [[nodiscard]] watching_resource* next() const noexcept { return next_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override;
  /// Also the upstream, whose blocks it may deallocate and the other way round.
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override;

  std::pmr::memory_resource* upstream_;
  watching_resource* next_;  // in the list of all
};

/// One more scope is open. @throws std::bad_alloc, with nothing changed.
void watch_default_resource();
/// One scope less. After the last the default resource is what it was, unless the program has set another.
void unwatch_default_resource() noexcept;
[[nodiscard]] bool is_default_resource_watched() noexcept;

}  // namespace tidemark::detail
