// SPDX-License-Identifier: Apache-2.0
// A resource for tests of the adapters: records its requests, and throws if a test sets that.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>
#include <vector>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::test {

class logging_resource final : public std::pmr::memory_resource {
 public:
  /// Thrown by deallocate.
  struct return_error {};
  struct request {
    std::size_t bytes, align;
    friend bool operator==(request const&, request const&) = default;
  };

  std::vector<request> allocations, deallocations;
  bool deallocate_throws = false;  ///< after it has freed the block
  /// Another resource that is equal to this one, or null.
  logging_resource const* twin = nullptr;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    allocations.push_back({bytes, align});
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocations.push_back({bytes, align});
    std::pmr::new_delete_resource()->deallocate(block, bytes, align);
    if (deallocate_throws) throw return_error{};
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other || (twin != nullptr && twin == &other);
  }
};

/// A resource that says which stream its memory is for.
class bound_resource final : public detail::distinct_resource {
 public:
  explicit bound_resource(gpu::stream_handle stream,
                          std::pmr::memory_resource* upstream = std::pmr::new_delete_resource())
      : stream_{stream}, upstream_{upstream} {}
  [[nodiscard]] gpu::stream_handle stream() const noexcept { return stream_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return upstream_->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    upstream_->deallocate(block, bytes, align);
  }

  gpu::stream_handle stream_;
  std::pmr::memory_resource* upstream_;
};

}  // namespace tidemark::test
