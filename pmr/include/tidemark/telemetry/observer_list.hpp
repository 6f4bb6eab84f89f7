// SPDX-License-Identifier: Apache-2.0
/// @file
/// `observer_list`: several observers as one. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <tidemark/core/allocation_observer.hpp>

namespace tidemark {

/// Passes each block to several observers, in their order: one may limit an arena, and others count and trace
/// its blocks.
///
/// ```cpp
/// observer_list watched{&budget, &counted, &traced};
/// arena step{{.name = "step", .observer = &watched}};
/// ```
/// If an observer rejects a block, the observers before it get `failed` or `released`, so all agree on the
/// blocks in use. Must outlive its resources, and the observers must outlive it. Thread-safe if they are.
class observer_list : public allocation_observer {
 public:
  /// Ignores null. @throws std::bad_alloc
  observer_list(std::initializer_list<allocation_observer*> observers);
  virtual ~observer_list() = default;

  /// Passes the call to each observer. @throws the exception of an observer, after `failed` for those before it
  void before_allocate(std::size_t bytes, std::size_t align) override;
  /// Passes the call to each observer. @throws the exception of an observer; the others then release the block
  void allocated(void* block, std::size_t bytes, std::size_t align) override;
  void failed(std::size_t bytes) noexcept override;
  void released(void* block, std::size_t bytes) noexcept override;
  void step_began(std::uint64_t kind) noexcept override;
  void step_ended() noexcept override;
  void detached() noexcept override;

 private:
  std::vector<allocation_observer*> observers_;
};

}  // namespace tidemark
