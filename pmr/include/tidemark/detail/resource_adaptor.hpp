// SPDX-License-Identifier: Apache-2.0
/// @file
/// What all adaptors share: an upstream, a name, and counts. Owns no memory.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>

#include <tidemark/detail/usage_counter.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/resource_stats.hpp>

namespace tidemark::detail {

/// The base of the resources that pass requests on to another. A derived class writes `allocate` and
/// `deallocate` as it needs them, from the counted ones here, and the virtual functions that call them.
///
/// Upstream and name must outlive it. Any thread, as far as the upstream allows.
class resource_adaptor : public std::pmr::memory_resource {
 public:
  resource_adaptor(resource_adaptor const&) = delete;
  resource_adaptor& operator=(resource_adaptor const&) = delete;

  /// The resource that memory comes from, never null.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return upstream_; }
  /// The name in messages and statistics.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// A snapshot of all counts since construction. O(1).
  [[nodiscard]] resource_stats stats() const noexcept { return counter_.stats(name_); }

 protected:
  /// @param kind the class's name, for the message.
  /// @throws std::invalid_argument if `upstream` is null.
  resource_adaptor(char const* kind, std::pmr::memory_resource* upstream, char const* name)
      : upstream_{upstream}, name_{name} {
    if (upstream == nullptr) refuse_null_upstream(kind);
  }
  ~resource_adaptor() override = default;

  /// A block from the upstream. @throws what the upstream throws; then it is counted as refused, and as
  /// nothing else.
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) {
    try {
      return upstream_->allocate(bytes, align);
    } catch (...) {
      counter_.refused();
      throw;
    }
  }

  usage_counter counter_;

 private:
  [[noreturn]] TIDEMARK_COLD void refuse_null_upstream(char const* kind) const;

  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept final { return this == &other; }

  std::pmr::memory_resource* upstream_;
  char const* name_;
};

}  // namespace tidemark::detail
