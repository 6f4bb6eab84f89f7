// SPDX-License-Identifier: Apache-2.0
// Strategy: end trapped scopes in functions of the program, and compare the first address behind "rewound by"
// with the function. The functions lie outside the library's namespace, because its functions are left out.
#include <tidemark/arena.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include <tidemark/diagnose/use_after_rewind.hpp>

#include "violation_recorder.hpp"

namespace {

using namespace tidemark;

// A function must not end with a tail call, which would take it off the stack.
[[gnu::noinline]] void after_the_call() { asm volatile("" ::: "memory"); }

[[gnu::noinline]] void* end_a_scope(arena& a) {
  void* block = nullptr;
  {
    arena::scope scope{a};
    block = scope.allocate(1);
  }
  after_the_call();
  return block;
}
[[gnu::noinline]] void* rewind_to_a_mark(arena& a) {
  const arena_mark mark = a.mark();
  void* const block = a.allocate(1);
  a.rewind(mark);
  after_the_call();
  return block;
}
[[gnu::noinline]] void* reset_the_arena(arena& a) {
  void* const block = a.allocate(1);
  a.reset();
  after_the_call();
  return block;
}

// The first address behind "rewound by". It is an offset in a file if a file precedes it.
std::uintptr_t first_call(std::string const& message, std::uintptr_t begin_of_file) {
  constexpr std::string_view words = "; rewound by ";
  const std::size_t calls = message.find(words);
  if (calls == std::string::npos) return 0;
  const std::string call =
      message.substr(calls + words.size(), message.find(' ', calls + words.size()) - calls);
  const std::size_t plus = call.find('+');
  if (plus == std::string::npos) return std::stoul(call, nullptr, 16);
  return begin_of_file + std::stoul(call.substr(plus + 1), nullptr, 16);
}

// E.5
TEST(rewound_by, begins_with_the_function_of_the_program) {
  const arena_options trapping{.name = "trapping", .trap = {.one_in = 1, .reserve = 1 * MiB}};
  for (const auto rewind : {&end_a_scope, &rewind_to_a_mark, &reset_the_arena}) {
    test::violation_recorder violations;
    arena a{trapping};
    ASSERT_TRUE(report_use_after_rewind(rewind(a)));
    ASSERT_EQ(violations.reports().size(), 1u);
    std::string const& message = violations.reports()[0].message;
    Dl_info module{};
    const auto function = reinterpret_cast<std::uintptr_t>(rewind);
    ASSERT_NE(::dladdr(reinterpret_cast<void const*>(function), &module), 0);
    const auto begin = reinterpret_cast<std::uintptr_t>(module.dli_fbase);
    EXPECT_GT(first_call(message, begin), function) << message;
    EXPECT_LT(first_call(message, begin), function + 1024) << message;
  }
}

TEST(rewound_by, ends_with_the_stack) {
  test::violation_recorder violations;
  arena a{{.name = "trapping", .trap = {.one_in = 1, .reserve = 1 * MiB}}};
  ASSERT_TRUE(report_use_after_rewind(end_a_scope(a)));
  EXPECT_EQ(violations.reports()[0].message.find("0xffffffffffffffff"), std::string::npos);
}

}  // namespace
