// SPDX-License-Identifier: Apache-2.0
// An element for tests of exceptions: knows the live elements of its type and their addresses, and throws
// from the n-th construction on demand.
#pragma once

#include <cstddef>
#include <set>

namespace tidemark::test {

class counted_element {
 public:
  struct construction_error {};

  /// Constructions from now until one throws: 1 is the next, 0 none.
  static void throw_at(int construction) { countdown() = construction; }
  /// Forgets all.
  static void start_anew() {
    countdown() = 0;
    live().clear();
    unborn() = 0;
  }
  /// Number of elements constructed and not destroyed.
  static std::size_t living() { return live().size(); }
  /// Number of destructions of elements that were not constructed, or were already destroyed.
  static std::size_t destroyed_unborn() { return unborn(); }

  counted_element(int value = 0) : value_{value} { be_born(); }  // NOLINT(google-explicit-constructor)
  counted_element(counted_element const& other) : value_{other.value_} { be_born(); }
  counted_element& operator=(counted_element const& other) = default;
  // Thrust destroys some without memory. The test counts these instead of ending.
  __attribute__((no_sanitize("undefined"))) ~counted_element() {
    if (live().erase(this) == 0) ++unborn();
  }

  [[nodiscard]] int value() const noexcept { return value_; }

 private:
  void be_born() {
    if (countdown() > 0 && --countdown() == 0) throw construction_error{};
    live().insert(this);
  }
  static int& countdown() {
    static int left = 0;
    return left;
  }
  static std::set<counted_element const*>& live() {
    static std::set<counted_element const*> all;
    return all;
  }
  static std::size_t& unborn() {
    static std::size_t n = 0;
    return n;
  }

  int value_;
};

}  // namespace tidemark::test
