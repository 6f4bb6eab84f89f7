// SPDX-License-Identifier: Apache-2.0
// Conjugate gradients with functions that return arrays: Poisson's equation on a square.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <utility>

#include "program.hpp"

namespace tidemark::bench {
namespace {

/// Numbers of one block, initially uninitialized.
class numbers {
 public:
  numbers(std::size_t size, std::pmr::memory_resource* memory)
      : memory_{memory}, size_{size}, first_{static_cast<double*>(memory->allocate(size * sizeof(double)))} {}
  numbers(numbers&& other) noexcept
      : memory_{other.memory_}, size_{other.size_}, first_{std::exchange(other.first_, nullptr)} {}
  numbers& operator=(numbers&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(first_, other.first_);
    return *this;
  }
  numbers(numbers const&) = delete;
  numbers& operator=(numbers const&) = delete;
  ~numbers() {
    if (first_ != nullptr) memory_->deallocate(first_, size_ * sizeof(double));
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::pmr::memory_resource* memory() const { return memory_; }
  [[nodiscard]] double& operator[](std::size_t i) { return first_[i]; }
  [[nodiscard]] double const& operator[](std::size_t i) const { return first_[i]; }

 private:
  std::pmr::memory_resource* memory_;
  std::size_t size_;
  double* first_;
};

template <class Function>
numbers each(numbers const& like, Function const& of) {
  numbers result{like.size(), like.memory()};
  for (std::size_t i = 0; i < like.size(); ++i) result[i] = of(i);
  return result;
}

numbers operator*(double factor, numbers const& a) {
  return each(a, [&](std::size_t i) { return factor * a[i]; });
}
numbers operator+(numbers const& a, numbers const& b) {
  return each(a, [&](std::size_t i) { return a[i] + b[i]; });
}
numbers operator-(numbers const& a, numbers const& b) {
  return each(a, [&](std::size_t i) { return a[i] - b[i]; });
}
double dot(numbers const& a, numbers const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Minus the Laplacian on side * side points, with 0 beyond the edge.
numbers laplace(numbers const& x, std::size_t side) {
  numbers result{x.size(), x.memory()};
  for (std::size_t row = 0; row < side; ++row) {
    for (std::size_t column = 0; column < side; ++column) {
      const std::size_t i = row * side + column;
      double sum = 4 * x[i];
      if (row > 0) sum -= x[i - side];
      if (row + 1 < side) sum -= x[i + side];
      if (column > 0) sum -= x[i - 1];
      if (column + 1 < side) sum -= x[i + 1];
      result[i] = sum;
    }
  }
  return result;
}

/// @return the squared norm of the residual after this many iterations
double solve(std::size_t side, int iterations, std::pmr::memory_resource* memory) {
  const numbers shape{side * side, memory};
  numbers x = each(shape, [](std::size_t) { return 0.0; });
  numbers residual = each(shape, [&](std::size_t i) { return i % side == side / 2 ? 1.0 : 0.0; });
  numbers direction = 1.0 * residual;
  double norm = dot(residual, residual);
  for (int k = 0; k < iterations; ++k) {
    const numbers image = laplace(direction, side);
    const double length = norm / dot(direction, image);
    x = x + length * direction;
    residual = residual - length * image;
    const double next = dot(residual, residual);
    direction = residual + (next / norm) * direction;
    norm = next;
  }
  return norm + x[x.size() / 2];
}

class gradients final : public worker {
 public:
  // 42 MB per array: glibc maps blocks of more than 32 MiB again each time (its DEFAULT_MMAP_THRESHOLD_MAX).
  gradients(step_memory& memory, extent size) : memory_{memory}, side_{size == extent::full ? 2300U : 30U} {}

  std::uint64_t step(unsigned) override {
    memory_.begin_step();
    const double norm = solve(side_, 5, memory_.resource());
    memory_.end_step();
    return std::bit_cast<std::uint64_t>(norm);
  }

 private:
  step_memory& memory_;
  std::size_t side_;
};

}  // namespace

std::unique_ptr<worker> start_gradients(step_memory& memory, unsigned, extent size) {
  return std::make_unique<gradients>(memory, size);
}

}  // namespace tidemark::bench
