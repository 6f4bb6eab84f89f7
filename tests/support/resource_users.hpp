// SPDX-License-Identifier: Apache-2.0
// Resources that allocate from an upstream inside their calls, which `expect_resource` must not count, and a
// program's own resource outside of namespace tidemark.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <type_traits>

#include <tidemark/tidemark.hpp>

/// Allocates all blocks from the default resource, in a separate function.
class users_own_resource final : public std::pmr::memory_resource {
 public:
  int allocations = 0;

 private:
  [[gnu::noinline]] void* allocate_from_default(std::size_t bytes, std::size_t align) {
    ++allocations;
    void* const block = std::pmr::get_default_resource()->allocate(bytes, align);
    return block;
  }
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    void* const block = allocate_from_default(bytes, align);
    return allocations > 0 ? block : nullptr;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    std::pmr::get_default_resource()->deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }
};

namespace tidemark::test {

using ::users_own_resource;

/// Makes the compiler believe that memory is used, so that it leaves no allocation out.
inline void keep(void const* memory) { asm volatile("" : : "r"(memory) : "memory"); }

/// Small and large blocks, as a container allocates them.
[[gnu::noinline]] inline void use_resource(std::pmr::memory_resource& resource) {
  for (const std::size_t bytes : {24u, 1000u, 100'000u, 5'000'000u}) {
    void* const block = resource.allocate(bytes);
    keep(block);
    resource.deallocate(block, bytes);
  }
}

/// Calls `body(name, use)` for each kind of resource, where `use(upstream)` makes one, uses it and destroys
/// it. Null: the default resource.
template <class Body>
void for_each_user_of_an_upstream(Body body) {
  const auto with = [&](char const* name, auto use) {
    body(name, [use](std::pmr::memory_resource* named) {
      use(named != nullptr ? named : std::pmr::get_default_resource());
    });
  };
  const auto made = [&]<class Resource>(char const* name, std::type_identity<Resource>) {
    with(name, [](auto* upstream) {
      Resource memory{upstream};
      use_resource(memory);
    });
  };
  const auto alone = [&]<class Resource>(char const* name, std::type_identity<Resource>) {
    with(name, [](auto*) {
      Resource memory;
      use_resource(memory);
    });
  };
  alone("arena", std::type_identity<arena>{});
  alone("shared_arena", std::type_identity<shared_arena>{});
  made("pool", std::type_identity<pool>{});
  made("synchronized_pool", std::type_identity<synchronized_pool>{});
  made("compat::unsynchronized_pool_resource", std::type_identity<compat::unsynchronized_pool_resource>{});
  made("compat::monotonic_buffer_resource", std::type_identity<compat::monotonic_buffer_resource>{});
  made("tracking_resource", std::type_identity<tracking_resource>{});
  made("test_resource", std::type_identity<test_resource>{});
  made("statistics_resource", std::type_identity<statistics_resource>{});
  made("std::pmr::monotonic_buffer_resource", std::type_identity<std::pmr::monotonic_buffer_resource>{});
  made("std::pmr::unsynchronized_pool_resource",
       std::type_identity<std::pmr::unsynchronized_pool_resource>{});
  made("std::pmr::synchronized_pool_resource", std::type_identity<std::pmr::synchronized_pool_resource>{});
  with("upstream_arena", [](auto* upstream) {
    upstream_arena memory{upstream};
    use_resource(memory);
    arena_mark const mark = memory.mark();
    use_resource(memory);
    memory.rewind(mark);
  });
  with("reuse_cache", [](auto* upstream) {
    reuse_cache memory{{.upstream = upstream}};
    use_resource(memory);
  });
  with("epoch_resource", [](auto* upstream) {
    epoch_resource memory{upstream};
    epoch step{memory, "step"};
    use_resource(memory);
    (void)memory.allocate(100);  // the epoch's end frees it
  });
  with("planned_arena", [](auto* upstream) {
    planned_arena memory{{.fallback = upstream}};
    for (int i = 0; i < 3; ++i) {
      planned_arena::step step{memory};
      use_resource(memory);
    }
  });
  with("workspace", [](auto* upstream) {
    workspace memory{{.upstream = upstream}};
    workspace::scope scope{memory};
    (void)scope.template acquire<double>(1000);
  });
}

}  // namespace tidemark::test
