// SPDX-License-Identifier: Apache-2.0
// What the step is made of: four operations, each written once, as the work of one of many threads. No module
// and nothing of CUDA's: nvcc cannot import, and the rest of the program is built where there is no nvcc.
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

struct CUstream_st;  // what a cudaStream_t points to

// Numbers row by row, in the memory of a machine. Owns nothing.
struct matrix {
  float* values;
  std::size_t rows, columns;
};

// result = a b, one element of it.
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

// The only row of `row` added to each row of `a`, one element.
struct add_row {
  matrix a, row, result;
  std::size_t threads() const { return a.rows * a.columns; }
  TIDEMARK_HOST_DEVICE void operator()(std::size_t thread) const {
    result.values[thread] = a.values[thread] + row.values[thread % a.columns];
  }
};

// What is below zero becomes zero, one element.
struct relu {
  matrix a, result;
  std::size_t threads() const { return a.rows * a.columns; }
  TIDEMARK_HOST_DEVICE void operator()(std::size_t thread) const {
    result.values[thread] = a.values[thread] > 0 ? a.values[thread] : 0;
  }
};

// Scores made probabilities, one row.
struct softmax {
  matrix scores, result;
  std::size_t threads() const { return scores.rows; }
  TIDEMARK_HOST_DEVICE void operator()(std::size_t thread) const {
    float const* const x = scores.values + thread * scores.columns;
    float* const y = result.values + thread * scores.columns;
    float highest = x[0], sum = 0;  // exp might overflow if the highest were not taken off
    for (std::size_t j = 1; j < scores.columns; ++j) highest = x[j] > highest ? x[j] : highest;
    for (std::size_t j = 0; j < scores.columns; ++j) sum += y[j] = expf(x[j] - highest);
    for (std::size_t j = 0; j < scores.columns; ++j) y[j] /= sum;
  }
};

using operation = std::variant<product, add_row, relu, softmax>;

// Who carries them out: one after the other, and maybe not before `finish`.
class machine {
 public:
  virtual ~machine() = default;
  virtual void run(operation const& work) = 0;
  // Between the host's memory and the machine's, in both directions.
  virtual void copy(void const* from, void* to, std::size_t bytes) = 0;
  virtual void finish() = 0;
};

// A stream of a device; only where this is built with nvcc.
std::unique_ptr<machine> cuda_machine(CUstream_st* stream);
