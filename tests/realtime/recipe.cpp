// SPDX-License-Identifier: Apache-2.0
// The recipe of docs/realtime.md, word for word, under RealtimeSanitizer. Its first callback does not block,
// although only its recipe has warmed the arena.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <tidemark/arena.hpp>

namespace {

tidemark::arena memory{{.reserve = 64 * tidemark::MiB, .commit_step = 4 * tidemark::MiB, .prefault = true}};

void start_up() {
  (void)memory.push_bytes(1, tidemark::uninitialized);  // commits 4 MiB, with pages behind them
}

// Under -fsanitize=realtime the sanitizer watches this function.
void callback(std::span<float> out) [[clang::nonblocking]] {
  tidemark::arena::scope block{memory};
  std::span<float> mixed = block.push_array<float>(out.size());
  std::ranges::copy(mixed, out.begin());
}

}  // namespace

int main() {
  std::vector<float> out(100'000, 1.0F);  // 400 kB, which no call before has asked for
  start_up();
  callback(out);
  std::puts(std::ranges::count(out, 0.0F) == 100'000 ? "no call blocked" : "the callback wrote nothing");
}
