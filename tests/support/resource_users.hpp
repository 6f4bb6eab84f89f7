// SPDX-License-Identifier: Apache-2.0
// Resources that take memory from an upstream inside their calls, for what `expect_resource` must not count;
// and one of a program's own, in no namespace of tidemark's.
#pragma once

#include <cstddef>
#include <memory_resource>

#include <tidemark/tidemark.hpp>

/// Takes everything from the default resource, in a function that it calls.
class users_own_resource final : public std::pmr::memory_resource {
 public:
  int taken = 0;

 private:
  [[gnu::noinline]] void* take(std::size_t bytes, std::size_t align) {
    ++taken;
    void* const block = std::pmr::get_default_resource()->allocate(bytes, align);
    return block;
  }
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    void* const block = take(bytes, align);
    return taken > 0 ? block : nullptr;
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
  const auto with = [](std::pmr::memory_resource* named, auto use) {
    use(named != nullptr ? named : std::pmr::get_default_resource());
  };
  body("arena", [](std::pmr::memory_resource*) {
    arena memory;
    use_resource(memory);
  });
  body("upstream_arena", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      upstream_arena memory{upstream};
      use_resource(memory);
      arena_mark const mark = memory.mark();
      use_resource(memory);
      memory.rewind(mark);
    });
  });
  body("shared_arena", [](std::pmr::memory_resource*) {
    shared_arena memory;
    use_resource(memory);
  });
  body("pool", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      pool memory{upstream};
      use_resource(memory);
    });
  });
  body("synchronized_pool", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      synchronized_pool memory{upstream};
      use_resource(memory);
    });
  });
  body("reuse_cache", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      reuse_cache memory{{.upstream = upstream}};
      use_resource(memory);
    });
  });
  body("epoch_resource", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      epoch_resource memory{upstream};
      epoch step{memory, "step"};
      use_resource(memory);
      (void)memory.allocate(100);  // the epoch's end frees it
    });
  });
  body("planned_arena", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      planned_arena memory{{.fallback = upstream}};
      for (int i = 0; i < 3; ++i) {
        planned_arena::step step{memory};
        use_resource(memory);
      }
    });
  });
  body("compat::unsynchronized_pool_resource", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      compat::unsynchronized_pool_resource memory{upstream};
      use_resource(memory);
    });
  });
  body("compat::monotonic_buffer_resource", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      compat::monotonic_buffer_resource memory{upstream};
      use_resource(memory);
    });
  });
  body("tracking_resource", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      tracking_resource memory{upstream};
      use_resource(memory);
    });
  });
  body("test_resource", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      test_resource memory{{}, upstream};
      use_resource(memory);
    });
  });
  body("statistics_resource", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      statistics_resource memory{upstream};
      use_resource(memory);
    });
  });
  body("workspace", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      workspace memory{{.upstream = upstream}};
      workspace::scope scope{memory};
      (void)scope.template acquire<double>(1000);
    });
  });
  body("std::pmr::monotonic_buffer_resource", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      std::pmr::monotonic_buffer_resource memory{upstream};
      use_resource(memory);
    });
  });
  body("std::pmr::unsynchronized_pool_resource", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      std::pmr::unsynchronized_pool_resource memory{upstream};
      use_resource(memory);
    });
  });
  body("std::pmr::synchronized_pool_resource", [=](std::pmr::memory_resource* named) {
    with(named, [](auto* upstream) {
      std::pmr::synchronized_pool_resource memory{upstream};
      use_resource(memory);
    });
  });
}

}  // namespace tidemark::test
