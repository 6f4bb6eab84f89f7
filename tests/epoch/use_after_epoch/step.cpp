// SPDX-License-Identifier: Apache-2.0
// Multiplies two buffers, named by its argument, and exits with 0 if the product is correct for an unchecked
// build: 64, or 0 for reclaimed buffers.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <tidemark/tidemark.hpp>

namespace {

using namespace tidemark;

float sum(buffer<float> const& of) {
  float all = 0;
  for (const float x : of.span()) all += x;
  return all;
}

int multiply(buffer<float> const& lhs, buffer<float> const& rhs, float expected) {
  require_live("mul", {{"lhs", lhs}, {"rhs", rhs}});
  return sum(lhs) * sum(rhs) == expected ? 0 : 3;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view what = count == 2 ? arguments[1] : "";
  // Code that reads the environment again finds another value than at the start.
  if (what == "set_later") setenv("TIDEMARK_EPOCH_DEBUG", "1", 1);
  if (what == "unset_later") unsetenv("TIDEMARK_EPOCH_DEBUG");

  epoch_resource memory;
  const buffer<float> live{memory, 8, 1.0F};
  buffer<float> gone, kept;
  {
    epoch run{memory, "run"};
    {
      epoch step{memory, "step"};
      gone = {memory, 8, 1.0F};
      kept = {memory, 8, 1.0F};
      step.keep(kept);
    }
    run.keep(kept);
  }
  if (what == "one" || what == "set_later" || what == "unset_later") return multiply(live, gone, 0);
  if (what == "both") return multiply(gone, gone, 0);
  if (what == "promoted") return multiply(live, kept, 64);
  return std::fprintf(stderr, "step: there is no case\n"), 2;
}
