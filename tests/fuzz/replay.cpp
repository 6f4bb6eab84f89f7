// SPDX-License-Identifier: Apache-2.0
// Passes each file of some folders to a fuzz target, without a fuzzer. Inputs that once found a fault thus
// stay tested.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

// For a target with its own mutator, which is never called here.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t*, std::size_t size, std::size_t) { return size; }

int main(int count, char** folders) {
  std::size_t files = 0;
  for (int i = 1; i < count; ++i) {
    for (auto const& entry : std::filesystem::directory_iterator(folders[i])) {
      std::ifstream file{entry.path(), std::ios::binary};
      const std::string bytes{std::istreambuf_iterator<char>{file}, {}};
      const std::vector<std::uint8_t> input(bytes.begin(),
                                            bytes.end());  // a block of its size, whose end tools see
      std::fprintf(stderr, "%s\n", entry.path().c_str());
      (void)LLVMFuzzerTestOneInput(input.data(), input.size());
      ++files;
    }
  }
  std::printf("%zu files were replayed\n", files);
  return files == 0 ? 1 : 0;
}
