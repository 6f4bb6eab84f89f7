// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation: operators record themselves on a tape, and the tape is played backwards.
module;
#include "standard.hpp"
export module digits.tape;

import tidemark;

// A matrix, row by row, and the derivative of the loss by each of its elements.
export struct tensor {
  tensor(std::size_t n, std::size_t m, bool is_variable, std::pmr::polymorphic_allocator<> memory)
      : rows{n}, columns{m}, variable{is_variable}, values(n * m, memory), gradient{memory} {}
  tensor(tensor const&) = delete;  // a copy would silently use the default resource
  std::pmr::memory_resource* memory() const { return values.get_allocator().resource(); }
  // Returns the gradient, zero at first. Allocated when the backward pass arrives; evaluation alone needs
  // none.
  float* wanted_gradient() {
    gradient.resize(values.size());
    return gradient.data();
  }

  std::size_t rows, columns;
  bool variable;  // true if the loss is differentiated by it; false for images
  std::pmr::vector<float> values, gradient;
};

// One operation: its result, and edges to its inputs.
struct node {
  using allocator_type = std::pmr::polymorphic_allocator<>;
  using edge_list = std::initializer_list<tensor*>;
  using backward_function = void (*)(node& self);  // adds to the gradients of inputs
  node(std::size_t n, std::size_t m, edge_list edges, backward_function f, allocator_type a)
      : result{n, m, f != nullptr, a}, inputs{edges, a}, backward{f} {}
  tensor result;
  std::pmr::vector<tensor*> inputs;
  backward_function backward;  // null for a constant
};

// c[j] += factor b[j]: the only multiplication loop. No element depends on another, so the compiler uses
// vector instructions, and the result does not depend on the address of the rows.
void add_scaled(float* __restrict c, float factor, float const* __restrict b, std::size_t columns) {
  for (std::size_t j = 0; j < columns; ++j) c[j] += factor * b[j];
}

// c (n x m) += a (n x k) b (k x m)
void add_product(float* c, float const* a, float const* b, std::size_t n, std::size_t k, std::size_t m) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t p = 0; p < k; ++p) add_scaled(c + i * m, a[i * k + p], b + p * m, m);
  }
}

// Returns a copy with rows and columns exchanged, so that a product can run along rows.
float const* transposed(tensor const& a, tidemark::arena::scope& temporary) {
  const auto copy = temporary.push_array<float>(a.values.size(), tidemark::uninitialized);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < a.columns; ++j) copy[j * a.rows + i] = a.values[i * a.columns + j];
  }
  return copy.data();
}

void linear_backward(node& self) {
  tensor &x = *self.inputs[0], &weights = *self.inputs[1], &bias = *self.inputs[2];
  float const* slope = self.result.gradient.data();
  const std::size_t n = x.rows, k = x.columns, m = bias.columns;
  // Data of this function alone is scratch. It must not lie on the resources of x and weights, because
  // gradients allocated from these meanwhile would vanish with it.
  tidemark::arena::scope temporary = tidemark::scratch(x.memory(), weights.memory());
  add_product(weights.wanted_gradient(), transposed(x, temporary), slope, k, n, m);
  if (x.variable) add_product(x.wanted_gradient(), slope, transposed(weights, temporary), n, m, k);
  for (std::size_t i = 0; i < n; ++i) add_scaled(bias.wanted_gradient(), 1, slope + i * m, m);
}

void relu_backward(node& self) {
  tensor const& y = self.result;
  float* gradient = self.inputs[0]->wanted_gradient();
  for (std::size_t i = 0; i < y.values.size(); ++i) gradient[i] += y.values[i] > 0 ? y.gradient[i] : 0;
}

void cross_entropy_backward(node& self) {
  std::pmr::vector<float> const& slope = self.inputs[1]->values;
  add_scaled(self.inputs[0]->wanted_gradient(), self.result.gradient[0], slope.data(), slope.size());
}

// The operations of one step. Every tensor, node and edge lives on the given resource: std::pmr::list passes
// it to its nodes, and these pass it to their tensors. On an arena the tape may be abandoned without
// destruction.
export class tape {
 public:
  explicit tape(std::pmr::memory_resource& memory) : nodes_{&memory} {}

  std::pmr::memory_resource* memory() const { return nodes_.get_allocator().resource(); }

  // Zeros, to be filled by the caller.
  tensor& constant(std::size_t rows, std::size_t columns) { return record(rows, columns, {}, nullptr); }

  // Returns x weights, with `bias` added to each row.
  tensor& linear(tensor& x, tensor& weights, tensor& bias) {
    tensor& result = record(x.rows, weights.columns, {&x, &weights, &bias}, linear_backward);
    float* y = result.values.data();
    for (std::size_t i = 0; i < x.rows; ++i) std::ranges::copy(bias.values, y + i * bias.columns);
    add_product(y, x.values.data(), weights.values.data(), x.rows, x.columns, weights.columns);
    return result;
  }

  tensor& relu(tensor& a) {
    tensor& result = record(a.rows, a.columns, {&a}, relu_backward);
    std::ranges::transform(a.values, result.values.begin(), [](float x) { return std::max(x, 0.0F); });
    return result;
  }

  // Returns the mean over the rows of -log(softmax of the row, at its label).
  tensor& cross_entropy(tensor& scores, std::span<unsigned char const> labels) {
    // The derivative by a score: softmax, less one at the label. A by-product, kept for the backward pass.
    tensor& slope = constant(scores.rows, scores.columns);
    tensor& result = record(1, 1, {&scores, &slope}, cross_entropy_backward);
    const auto rows = static_cast<float>(scores.rows);
    for (std::size_t i = 0; i < scores.rows; ++i) {
      float const* x = scores.values.data() + i * scores.columns;
      float* y = slope.values.data() + i * scores.columns;
      const float highest = *std::max_element(x, x + scores.columns);  // exp could overflow without it
      float sum = 0;
      for (std::size_t j = 0; j < scores.columns; ++j) sum += y[j] = std::exp(x[j] - highest);
      for (std::size_t j = 0; j < scores.columns; ++j) y[j] /= sum * rows;
      y[labels[i]] -= 1 / rows;
      result.values[0] += (std::log(sum) - (x[labels[i]] - highest)) / rows;
    }
    return result;
  }

  // Adds the derivative of the last result to the gradients of all variables.
  void play_backwards() {
    nodes_.back().result.wanted_gradient()[0] = 1;
    for (node& operation : nodes_ | std::views::reverse) {
      if (operation.backward != nullptr) operation.backward(operation);
    }
  }

 private:
  tensor& record(std::size_t n, std::size_t m, node::edge_list inputs, node::backward_function backward) {
    return nodes_.emplace_back(n, m, inputs, backward).result;
  }

  std::pmr::list<node> nodes_;  // in the order of computation; a list, because edges point into it
};
