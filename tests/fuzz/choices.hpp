// SPDX-License-Identifier: Apache-2.0
// A fuzzer's bytes as the choices that a model makes, and what was done as C++ where it fails.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory_resource>
#include <span>
#include <string>

namespace tidemark::fuzz {

/// Numbers of two bytes each, from a fuzzer's input; 0 once that is at its end. Copies read on together.
class choices {
 public:
  explicit choices(std::span<std::uint8_t const>& rest) : rest_{&rest} {}
  std::uint64_t operator()() {
    std::uint16_t number = 0;
    const std::size_t bytes = std::min(sizeof number, rest_->size());
    if (bytes != 0) std::memcpy(&number, rest_->data(), bytes);
    *rest_ = rest_->subspan(bytes);
    return number;
  }
  [[nodiscard]] bool are_at_an_end() const { return rest_->empty(); }

 private:
  std::span<std::uint8_t const>* rest_;
};

/// What was done so far, as a program; printed where an expectation fails. A sanitizer ends the program itself: with
/// TIDEMARK_TELL set each line is printed as it is reached.
class told_program {
 public:
  static told_program& current() {
    static told_program one;
    return one;
  }
  void begin(std::string const& line) {
    text_.clear();
    append(line + "\n");
  }
  void add(std::string const& line) { append("  " + line + "\n"); }
  void print() const { std::fprintf(stderr, "what was done, as C++:\n%s", text_.c_str()); }

 private:
  void append(std::string const& line) {
    if (tells_) std::fputs(line.c_str(), stderr);
    text_ += line;
  }

  std::string text_;
  bool tells_ = std::getenv("TIDEMARK_TELL") != nullptr;
};

/// Ends the program if an expectation failed, so that the fuzzer keeps the input.
inline void stop_if_failed() {
  if (!testing::Test::HasFailure()) return;
  told_program::current().print();
  std::abort();
}

/// Tells each call as a line of C++.
class told_resource final : public std::pmr::memory_resource {
 public:
  explicit told_resource(std::pmr::memory_resource& upstream) : upstream_{upstream} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    const std::size_t number = ++blocks_;
    told_program::current().add("void* b" + std::to_string(number) + " = memory.allocate(" +
                                std::to_string(bytes) + ", " + std::to_string(align) + ");");
    void* const block = upstream_.allocate(bytes, align);
    numbers_[block] = number;
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    told_program::current().add("memory.deallocate(b" + std::to_string(numbers_[block]) + ", " +
                                std::to_string(bytes) + ", " + std::to_string(align) + ");");
    upstream_.deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource& upstream_;
  std::size_t blocks_ = 0;
  std::map<void*, std::size_t> numbers_;
};

}  // namespace tidemark::fuzz
