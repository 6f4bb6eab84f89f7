// SPDX-License-Identifier: Apache-2.0
// The operations of a model, as C++. They are printed if a fuzzer's input fails. With TIDEMARK_PRINT_STEPS
// set each line is printed before its operation, also in tests of models, because a sanitizer ends the
// program itself.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <ostream>
#include <sstream>
#include <string>

#include <tidemark/core/detail/distinct_resource.hpp>

namespace tidemark::test {

class program_log {
 public:
  static program_log& current() {
    static program_log one;
    return one;
  }
  /// Forgets the last program, and keeps this one to be printed.
  void begin(std::string const& line) {
    text_.clear();
    numbers_.clear();
    blocks_ = 0;
    keeps_ = true;
    append(line + "\n");
  }
  [[nodiscard]] bool is_active() const { return keeps_ || prints_; }
  void add(std::string const& line) { append("  " + line + "\n"); }
  void print() const { std::fprintf(stderr, "what was done, as C++:\n%s", text_.c_str()); }

  // Blocks are b1, b2, ..., in the order of their allocation.
  [[nodiscard]] std::size_t next_block() const { return blocks_ + 1; }
  void name_block(void const* block) {
    if (is_active()) numbers_[block] = ++blocks_;
  }
  [[nodiscard]] std::size_t number_of(void const* block) const {
    const auto found = numbers_.find(block);
    return found != numbers_.end() ? found->second : 0;
  }

 private:
  void append(std::string const& line) {
    if (prints_) std::fputs(line.c_str(), stderr);
    if (keeps_) text_ += line;
  }

  std::string text_;
  std::map<void const*, std::size_t> numbers_;
  std::size_t blocks_ = 0;
  bool keeps_ = false;
  bool prints_ = std::getenv("TIDEMARK_PRINT_STEPS") != nullptr;
};

/// A line of streamable parts. Costs a load if no program is told.
template <class... Parts>
void log_line(Parts const&... parts) {
  program_log& program = program_log::current();
  if (!program.is_active()) return;
  std::ostringstream line;
  (line << ... << parts);
  program.add(line.str());
}

/// In a line: the block that the line allocates. `name_block` then gets its address.
struct new_block {
  friend std::ostream& operator<<(std::ostream& line, new_block) {
    return line << 'b' << program_log::current().next_block();
  }
};
inline void name_block(void const* block) { program_log::current().name_block(block); }

/// In a line: a block that was named.
struct block_at {
  void const* first;
  friend std::ostream& operator<<(std::ostream& line, block_at block) {
    return line << 'b' << program_log::current().number_of(block.first);
  }
};

/// Allocates a block from the resource with this name in the line, and prints the line.
template <class Resource>
void* log_allocate(char const* name, Resource& memory, std::size_t bytes, std::size_t align) {
  log_line("void* ", new_block{}, " = ", name, ".allocate(", bytes, ", ", align, ");");
  void* const block = memory.allocate(bytes, align);
  name_block(block);
  return block;
}
template <class Resource>
void log_deallocate(char const* name, Resource& memory, void* block, std::size_t bytes, std::size_t align) {
  log_line(name, ".deallocate(", block_at{block}, ", ", bytes, ", ", align, ");");
  memory.deallocate(block, bytes, align);
}

/// Tells each call of a resource.
class told_resource final : public detail::distinct_resource {
 public:
  explicit told_resource(std::pmr::memory_resource& upstream) : upstream_{upstream} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return log_allocate("memory", upstream_, bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    log_deallocate("memory", upstream_, block, bytes, align);
  }

  std::pmr::memory_resource& upstream_;
};

}  // namespace tidemark::test
