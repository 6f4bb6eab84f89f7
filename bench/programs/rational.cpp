// SPDX-License-Identifier: Apache-2.0
// Exact linear algebra: the inverse of a Hilbert matrix by Gauss-Jordan elimination on GMP's rationals.
#include <gmpxx.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <vector>

#include "program.hpp"

namespace tidemark::bench {
namespace {

std::pmr::memory_resource* numbers = nullptr;  // GMP's functions take no user argument

// GMP can neither continue without memory nor be left by an exception, so the program ends.
void* allocate(std::size_t bytes) noexcept { return numbers->allocate(bytes); }
void deallocate(void* block, std::size_t bytes) noexcept { numbers->deallocate(block, bytes); }
void* reallocate(void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept {
  void* const moved = numbers->allocate(new_bytes);
  std::memcpy(moved, block, std::min(old_bytes, new_bytes));
  numbers->deallocate(block, old_bytes);
  return moved;
}

// malloc serves GMP as usual, with its own realloc.
void* malloc_allocate(std::size_t bytes) noexcept {
  const allocating now;
  return std::malloc(bytes);
}
void malloc_deallocate(void* block, std::size_t) noexcept {
  const allocating now;
  std::free(block);
}
void* malloc_reallocate(void* block, std::size_t, std::size_t new_bytes) noexcept {
  const allocating now;
  return std::realloc(block, new_bytes);
}

using row = std::vector<mpq_class>;

/// Turns the left half of the matrix into the identity, and thus the right half into the inverse.
void eliminate(std::vector<row>& matrix) {
  const std::size_t n = matrix.size();
  for (std::size_t pivot = 0; pivot < n; ++pivot) {
    const mpq_class scale = 1 / matrix[pivot][pivot];
    for (mpq_class& entry : matrix[pivot]) entry *= scale;
    for (std::size_t i = 0; i < n; ++i) {
      if (i == pivot) continue;
      const mpq_class factor = matrix[i][pivot];
      for (std::size_t j = pivot; j < 2 * n; ++j) matrix[i][j] -= factor * matrix[pivot][j];
    }
  }
}

class rational final : public worker {
 public:
  rational(step_memory& memory, extent size) : memory_{memory}, n_{size == extent::full ? 44U : 6U} {
    numbers = memory.resource();
    if (memory.is_malloc()) mp_set_memory_functions(malloc_allocate, malloc_reallocate, malloc_deallocate);
    else mp_set_memory_functions(allocate, reallocate, deallocate);
  }
  ~rational() override { mp_set_memory_functions(nullptr, nullptr, nullptr); }

  std::uint64_t step(unsigned) override {
    memory_.begin_step();
    const std::uint64_t sum = sum_of_inverse();
    memory_.end_step();
    return sum;
  }

 private:
  /// Returns the sum of all entries of the inverse, which is n * n (Choi 1983, "Tricks or treats with the
  /// Hilbert matrix").
  [[nodiscard]] std::uint64_t sum_of_inverse() const {
    std::vector<row> matrix(n_, row(2 * n_));
    for (unsigned i = 0; i < n_; ++i) {
      for (unsigned j = 0; j < n_; ++j) matrix[i][j] = mpq_class{1, i + j + 1};
      matrix[i][n_ + i] = 1;
    }
    eliminate(matrix);
    mpq_class sum;
    for (row const& each : matrix) {
      for (std::size_t j = n_; j < 2 * n_; ++j) sum += each[j];
    }
    if (sum != n_ * n_) throw std::logic_error{"the inverse of the Hilbert matrix is wrong"};
    return sum.get_num().get_ui();
  }

  step_memory& memory_;
  unsigned n_;
};

}  // namespace

std::unique_ptr<worker> start_rational(step_memory& memory, unsigned, extent size) {
  return std::make_unique<rational>(memory, size);
}

}  // namespace tidemark::bench
