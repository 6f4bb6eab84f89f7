// SPDX-License-Identifier: Apache-2.0
// Strategy: operator new is the watched one. Tests each of its forms, and which calls scopes count. The tests
// are outside of namespace tidemark, because code inside it is not counted.
#include <tidemark/diagnose/watched_new.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "contains.hpp"
#include "resource_users.hpp"
#include "violation_recorder.hpp"

namespace {

using namespace tidemark;
using test::contains;
using test::keep;

using floats = std::pmr::vector<float>;

[[gnu::noinline]] void use_the_heap(std::size_t n) {
  std::vector<float> heap(n);
  keep(heap.data());
}
[[gnu::noinline]] void forget_the_argument(std::size_t n) {
  floats forgotten(n);
  keep(forgotten.data());
}

struct alignas(64) aligned {
  char bytes[64];
};

struct watched_new : ::testing::Test {
  arena step;
  test::violation_recorder recorder;
};

// T.21
TEST_F(watched_new, counts_every_form) {
  struct form {
    std::function<void*()> allocate;
    std::function<void(void*)> deallocate;
  };
  const std::align_val_t align{64};
  const std::vector<form> forms{
      {[] { return ::operator new(100); }, [](void* p) { ::operator delete(p); }},
      {[] { return ::operator new(100); }, [](void* p) { ::operator delete(p, std::size_t{100}); }},
      {[] { return ::operator new[](100); }, [](void* p) { ::operator delete[](p); }},
      {[] { return ::operator new[](100); }, [](void* p) { ::operator delete[](p, std::size_t{100}); }},
      {[] { return ::operator new(100, std::nothrow); }, [](void* p) { ::operator delete(p, std::nothrow); }},
      {[] { return ::operator new[](100, std::nothrow); },
       [](void* p) { ::operator delete[](p, std::nothrow); }},
      {[=] { return ::operator new(100, align); }, [=](void* p) { ::operator delete(p, align); }},
      {[=] { return ::operator new(100, align); },
       [=](void* p) { ::operator delete(p, std::size_t{100}, align); }},
      {[=] { return ::operator new[](100, align); }, [=](void* p) { ::operator delete[](p, align); }},
      {[=] { return ::operator new[](100, align); },
       [=](void* p) { ::operator delete[](p, std::size_t{100}, align); }},
      {[=] { return ::operator new(100, align, std::nothrow); },
       [=](void* p) { ::operator delete(p, align, std::nothrow); }},
      {[=] { return ::operator new[](100, align, std::nothrow); },
       [=](void* p) { ::operator delete[](p, align, std::nothrow); }},
  };
  const expect_resource expected{&step};
  for (std::size_t i = 0; i < forms.size(); ++i) {
    void* const block = forms[i].allocate();
    EXPECT_EQ(expected.missed_blocks(), i + 1) << i;
    EXPECT_EQ(expected.missed_bytes(), 100 * (i + 1)) << i;
    forms[i].deallocate(block);
  }
}

TEST_F(watched_new, aligns_as_requested) {
  for (std::size_t align = 1; align <= 4096; align *= 2) {
    for (const std::size_t bytes : {0u, 1u, 100u, 10'000u}) {
      void* const block = ::operator new(bytes, std::align_val_t{align});
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % align, 0u);
      ::operator delete(block, std::align_val_t{align});
    }
  }
  const auto object = std::make_unique<aligned>();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(object.get()) % 64, 0u);
}

// AddressSanitizer ends a program that requests this much memory, unless an option forbids it.
constexpr std::size_t impossible = std::numeric_limits<std::size_t>::max() / 4;

#if TIDEMARK_ASAN
extern "C" char const* __asan_default_options() { return "allocator_may_return_null=1"; }
#endif

int handled = 0;

TEST_F(watched_new, calls_the_new_handler_until_it_fails) {
  handled = 0;
  std::set_new_handler([] {
    if (++handled == 3) std::set_new_handler(nullptr);
  });
  EXPECT_THROW((void)::operator new(impossible), std::bad_alloc);
  EXPECT_EQ(handled, 3);
}

TEST_F(watched_new, throws_or_returns_null_without_memory_and_counts_nothing) {
  const expect_resource expected{&step};
  int thrown = 0;
  for (int form = 0; form < 2; ++form) {
    try {
      (void)(form == 0 ? ::operator new(impossible) : ::operator new(impossible, std::align_val_t{64}));
    } catch (std::bad_alloc const&) {
      ++thrown;
    }
  }
  void* const first = ::operator new(impossible, std::nothrow);
  void* const second = ::operator new(impossible, std::align_val_t{64}, std::nothrow);
  EXPECT_EQ(thrown, 2);
  EXPECT_EQ(first, nullptr);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(expected.missed_bytes(), 0u);
}

// T.21
TEST_F(watched_new, the_report_names_the_function_and_operator_new) {
  const expect_resource expected{&step, "step"};
  use_the_heap(100);
  const std::string report = expected.report();
  EXPECT_PRED2(test::begins_with, report,
               "expect_resource 'step': 1 block of 400 bytes came from elsewhere\n"
               "  1 block of 400 bytes from operator new\n"
               "    (anonymous namespace)::use_the_heap(unsigned long) at ");
  EXPECT_FALSE(contains(report, "was not watched")) << report;
}

TEST_F(watched_new, a_block_of_the_default_resource_is_counted_once) {
  const expect_resource expected{&step};
  forget_the_argument(100);
  EXPECT_EQ(expected.missed_blocks(), 1u);
  EXPECT_PRED2(test::contains, expected.report(), "from the default resource");
}

TEST_F(watched_new, a_container_from_before_the_scope_shows_as_operator_new) {
  floats before(10);
  const expect_resource expected{&step};
  before.resize(100);
  EXPECT_EQ(expected.missed_bytes(), 400u);
  EXPECT_PRED2(test::contains, expected.report(), "from operator new");
}

TEST_F(watched_new, counts_allocations_in_code_of_the_standard_library) {
  const expect_resource expected{&step};
  const std::string text(100, 'x');  // in the library's file, not in the program
  keep(text.data());
  EXPECT_EQ(expected.missed_blocks(), 1u);
  EXPECT_PRED2(test::contains, expected.report(), "TestBody() at ");
}

TEST_F(watched_new, counts_heap_memory_of_objects_inside_an_arena) {
  const expect_resource expected{&step};
  step.make<std::vector<float>>(100u);
  EXPECT_EQ(expected.missed_blocks(), 1u) << expected.report();
}

// T.21
TEST_F(watched_new, counts_nothing_that_resources_take_from_the_heap_and_for_their_records) {
  test::for_each_user_of_an_upstream([&](char const* name, auto use) {
    const expect_resource expected{&step};
    use(std::pmr::new_delete_resource());
    use(nullptr);
    EXPECT_EQ(expected.missed_blocks(), 0u) << name << '\n' << expected.report();
  });
}

TEST_F(watched_new, counts_nothing_for_its_own_scopes_and_reports) {
  const expect_resource outer{&step};
  {
    const expect_resource inner{&step};
    use_the_heap(1);
    for (int i = 0; i < 3; ++i) (void)inner.report();
  }
  EXPECT_EQ(outer.missed_blocks(), 1u) << outer.report();
}

TEST_F(watched_new, counts_a_thread_start_but_not_its_allocations) {
  const expect_resource expected{&step};
  std::thread{[] { use_the_heap(1'000'000); }}.join();
  EXPECT_EQ(expected.missed_blocks(), 1u) << expected.report();  // the function of the thread
  EXPECT_LT(expected.missed_bytes(), 1000u);
}

TEST_F(watched_new, a_forked_child_counts_on) {
  const expect_resource expected{&step};
  use_the_heap(10);
  const pid_t child = ::fork();
  if (child == 0) {
    use_the_heap(10);
    const bool holds = expected.missed_blocks() == 2 && contains(expected.report(), "use_the_heap");
    ::_exit(holds ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(expected.missed_blocks(), 1u);
}

}  // namespace
