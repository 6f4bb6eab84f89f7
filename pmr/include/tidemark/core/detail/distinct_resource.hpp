// SPDX-License-Identifier: Apache-2.0
/// @file
/// `distinct_resource`: base of resources that equal only themselves. `forwarding_resource`: base of
/// resources whose virtual functions call their `allocate` and `deallocate`.
#pragma once

#include <cstddef>
#include <memory_resource>

#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

/// A memory resource that equals only itself. Not copyable, because users hold its address.
class distinct_resource : public std::pmr::memory_resource {
 public:
  distinct_resource() = default;
  distinct_resource(distinct_resource const&) = delete;
  distinct_resource& operator=(distinct_resource const&) = delete;

  // Containers reject a reference to a resource with a long error, because they take its address.
  template <class T TIDEMARK_SENTENCE("a container takes the address of a resource: write &resource")>
  operator std::pmr::polymorphic_allocator<T>() const  // NOLINT(google-explicit-constructor)
      TIDEMARK_DELETED("a container takes the address of a resource: write &resource");

  /// Returns unused memory to its source. Does nothing in resources that keep no unused memory.
  virtual void release_unused() noexcept {}

 protected:
  ~distinct_resource() override = default;
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }
};

/// A distinct resource whose `std::pmr` interface forwards to the derived class.
/// @tparam Resource the derived class, which has `allocate` and `deallocate`
template <class Resource>
class forwarding_resource : public distinct_resource {
 protected:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return static_cast<Resource*>(this)->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) final {
    static_cast<Resource*>(this)->deallocate(block, bytes, align);
  }
};

}  // namespace tidemark::detail
