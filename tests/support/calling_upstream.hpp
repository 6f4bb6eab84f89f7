// SPDX-License-Identifier: Apache-2.0
// The heap, or another resource, which calls functions of a test before it allocates and before it frees.
#pragma once

#include <cstddef>
#include <functional>
#include <memory_resource>
#include <utility>

#include <tidemark/core/detail/distinct_resource.hpp>

namespace tidemark::test {

class calling_upstream final : public detail::distinct_resource {
 public:
  explicit calling_upstream(std::pmr::memory_resource* upstream = std::pmr::new_delete_resource())
      : upstream_{upstream} {}

  std::function<void()> on_allocate = [] {}, on_deallocate = [] {};

  void on_each(std::function<void()> call) {
    on_allocate = call;
    on_deallocate = std::move(call);
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    on_allocate();
    return upstream_->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    on_deallocate();
    upstream_->deallocate(block, bytes, align);
  }

  std::pmr::memory_resource* upstream_;
};

}  // namespace tidemark::test
