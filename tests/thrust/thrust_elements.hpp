// SPDX-License-Identifier: Apache-2.0
// Elements for the tests of vectors, and functions that read a vector's contents back from any memory.
#pragma once

#include <vector>

#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/transform.h>

#include <tidemark/thrust/detail/backend.hpp>

namespace tidemark::test {

/// A number that knows its place of construction. `is_whole()` is false for a number that was moved as bytes,
/// never constructed, or destroyed.
// Assignment makes it whole, too: from the host to a device Thrust assigns to memory in which nothing was
// made yet.
class whole {
 public:
  TIDEMARK_HOST_DEVICE whole(int value = 0) noexcept  // NOLINT(google-explicit-constructor)
      : value_{value}, self_{this} {}
  TIDEMARK_HOST_DEVICE whole(whole const& other) noexcept : value_{other.value_}, self_{this} {}
  TIDEMARK_HOST_DEVICE whole& operator=(whole const& other) noexcept {
    value_ = other.value_;
    self_ = this;
    return *this;
  }
  TIDEMARK_HOST_DEVICE ~whole() { self_ = nullptr; }

  [[nodiscard]] TIDEMARK_HOST_DEVICE int value() const noexcept { return value_; }
  [[nodiscard]] TIDEMARK_HOST_DEVICE bool is_whole() const noexcept { return self_ == this; }

 private:
  int value_;
  whole const* self_;
};

/// Returns an element's number, or `broken` if the element is not whole.
struct read_number {
  static constexpr int broken = -999;

  TIDEMARK_HOST_DEVICE int operator()(int element) const noexcept { return element; }
  TIDEMARK_HOST_DEVICE int operator()(whole const& element) const noexcept {
    return element.is_whole() ? element.value() : broken;
  }
};

/// Returns the numbers of a device's vector, read on the device.
template <class T, class Allocator>
std::vector<int> numbers_in(thrust::device_vector<T, Allocator> const& elements) {
  if (elements.empty()) return {};
  thrust::device_vector<int> read(elements.size());
  thrust::transform(elements.begin(), elements.end(), read.begin(), read_number{});
  std::vector<int> numbers(elements.size());
  thrust::copy(read.begin(), read.end(), numbers.begin());
  return numbers;
}

/// The numbers of a vector that the host may read.
template <class Vector>
std::vector<int> numbers_in(Vector const& elements) {
  std::vector<int> numbers;
  if (elements.empty()) return numbers;  // `data()` makes a reference to nothing then
  auto const* const first = thrust::raw_pointer_cast(elements.data());
  for (std::size_t i = 0; i < elements.size(); ++i) numbers.push_back(read_number{}(first[i]));
  return numbers;
}

/// `first`, `first + 1`, … `last`.
inline std::vector<int> numbers_from_to(int first, int last) {
  std::vector<int> numbers;
  for (int i = first; i <= last; ++i) numbers.push_back(i);
  return numbers;
}

}  // namespace tidemark::test
