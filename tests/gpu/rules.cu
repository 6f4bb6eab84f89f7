// SPDX-License-Identifier: Apache-2.0
// Asks a device about one rule, and prints a row of the table in docs/gpu.md. The exit status is 0 if the
// rule is confirmed, 3 if it is refuted, 1 without an answer, 77 without a device.
#include <cstdio>
#include <cstring>
#include <exception>

#include "measure.hpp"
#include "rule.hpp"

namespace tidemark::test {
namespace {

__global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

}  // namespace

void launch_spin(cudaStream_t stream, long long cycles) {
  spin<<<1, 1, 0, stream>>>(cycles);
  require(cudaGetLastError(), "spin");
}

namespace {

template <class Do>
void for_each_rule(Do what) {
  for (auto const& rules : {rules_of_captures(), rules_of_streams(), rules_of_memory()}) {
    for (rule const& each : rules) what(each);
  }
}

int run(rule const& tested) {
  try {
    const answer got = tested.run();
    std::printf("| `%s` | %s | %s | %s |\n", tested.name, tested.says,
                got.is_confirmed ? "confirmed" : "**refuted**", got.seen.c_str());
    return got.is_confirmed ? 0 : 3;
  } catch (std::exception const& error) {
    std::printf("| `%s` | %s | no answer | %s |\n", tested.name, tested.says, error.what());
    return 1;
  }
}

}  // namespace
}  // namespace tidemark::test

int main(int argc, char** argv) {
  using namespace tidemark::test;
  if (argc != 2) {
    std::fputs("usage: rules list|NAME\n", stderr);
    return 2;
  }
  if (std::strcmp(argv[1], "list") == 0) {
    for_each_rule([](rule const& each) { std::puts(each.name); });
    return 0;
  }
  rule const* wanted = nullptr;
  for_each_rule([&](rule const& each) {
    if (std::strcmp(each.name, argv[1]) == 0) wanted = &each;
  });
  if (wanted == nullptr) {
    std::fprintf(stderr, "rules: unknown rule '%s'; 'rules list' names all rules\n", argv[1]);
    return 2;
  }
  if (const this_device device = find_device(); !device.found) {
    std::printf("rules: skipped: %s\n", device.text.c_str());
    return skipped;
  }
  return run(*wanted);
}
