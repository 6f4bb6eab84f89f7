// SPDX-License-Identifier: Apache-2.0
// The four operations of the step, each written once as the work of one of many threads. Uses no module,
// because nvcc cannot import, and no CUDA header, because the other files also compile without nvcc.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <variant>

#ifdef __CUDACC__
#define TIDEMARK_HOST_DEVICE __host__ __device__
#else
#define TIDEMARK_HOST_DEVICE
#endif

struct CUstream_st;  // target of a cudaStream_t

// Numbers row by row, in the memory of a machine. Owns no memory.
struct matrix {
  float* values;
  std::size_t rows, columns;
};

// Computes one element of result = a b.
struct product {
  matrix a, b, result;
  std::size_t threads() const { return result.rows * result.columns; }
  TIDEMARK_HOST_DEVICE void operator()(std::size_t thread) const {
    float const* const row = a.values + thread / result.columns * a.columns;
    float const* const column = b.values + thread % result.columns;
    float sum = 0;
    for (std::size_t k = 0; k < a.columns; ++k) sum += row[k] * column[k * b.columns];
    result.values[thread] = sum;
  }
};

// Adds the single row of `row` to each row of `a`, one element at a time.
struct add_row {
  matrix a, row, result;
  std::size_t threads() const { return a.rows * a.columns; }
  TIDEMARK_HOST_DEVICE void operator()(std::size_t thread) const {
    result.values[thread] = a.values[thread] + row.values[thread % a.columns];
  }
};

// Replaces a negative element by zero.
struct relu {
  matrix a, result;
  std::size_t threads() const { return a.rows * a.columns; }
  TIDEMARK_HOST_DEVICE void operator()(std::size_t thread) const {
    result.values[thread] = a.values[thread] > 0 ? a.values[thread] : 0;
  }
};

// Converts one row of scores to probabilities.
struct softmax {
  matrix scores, result;
  std::size_t threads() const { return scores.rows; }
  TIDEMARK_HOST_DEVICE void operator()(std::size_t thread) const {
    float const* const x = scores.values + thread * scores.columns;
    float* const y = result.values + thread * scores.columns;
    float highest = x[0], sum = 0;  // exp could overflow without subtracting the highest
    for (std::size_t j = 1; j < scores.columns; ++j) highest = x[j] > highest ? x[j] : highest;
    for (std::size_t j = 0; j < scores.columns; ++j) sum += y[j] = expf(x[j] - highest);
    for (std::size_t j = 0; j < scores.columns; ++j) y[j] /= sum;
  }
};

using operation = std::variant<product, add_row, relu, softmax>;

// Runs operations one after the other, possibly delayed until `finish`.
class machine {
 public:
  virtual ~machine() = default;
  virtual void run(operation const& work) = 0;
  // Copies between the host's memory and the machine's, in both directions.
  virtual void copy(void const* from, void* to, std::size_t bytes) = 0;
  virtual void finish() = 0;
};

// A stream of a device. Only defined in builds with nvcc.
std::unique_ptr<machine> cuda_machine(CUstream_st* stream);
