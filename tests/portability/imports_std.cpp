// SPDX-License-Identifier: Apache-2.0
// A program without a single #include: it imports the standard library as a module too.
import std;
import tidemark;

int main() {
  tidemark::arena step{{.reserve = 64 * tidemark::MiB, .name = "step"}};
  tidemark::arena::scope scope{step};
  std::pmr::vector<int> v({1, 2, 3}, &step);
  std::println("{} {}", v[2], step.owns(v.data()));
}
