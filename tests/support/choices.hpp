// SPDX-License-Identifier: Apache-2.0
// The source of a model's choices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace tidemark::test {

/// Random numbers from a seed; or a fuzzer's input, two bytes a number, and 0 once that is at its end.
class choices {
 public:
  choices(std::uint64_t seed) : random_{seed} {}  // NOLINT(google-explicit-constructor): a seed is enough
  /// Copies read on together.
  explicit choices(std::span<std::uint8_t const>& input) : input_{&input} {}

  std::uint64_t operator()() {
    if (input_ == nullptr) return random_();
    std::uint16_t number = 0;
    const std::size_t bytes = std::min(sizeof number, input_->size());
    if (bytes != 0) std::memcpy(&number, input_->data(), bytes);
    *input_ = input_->subspan(bytes);
    return number;
  }
  /// Choices for a model inside this one: a separate sequence of numbers, or the same input.
  choices another() { return input_ == nullptr ? choices{random_()} : *this; }
  [[nodiscard]] bool are_at_an_end() const { return input_ != nullptr && input_->empty(); }

 private:
  std::mt19937_64 random_{};
  std::span<std::uint8_t const>* input_ = nullptr;
};

/// Removes element `i`, moves the last element to its place, and returns the removed element.
template <class Element>
Element remove_at(std::vector<Element>& from, std::size_t i) {
  std::swap(from[i], from.back());
  Element const removed = from.back();
  from.pop_back();
  return removed;
}

}  // namespace tidemark::test
