// SPDX-License-Identifier: Apache-2.0
// Automatic differentiation of small expressions: fits a curve, with a new tape for each step.
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <memory_resource>
#include <random>
#include <utility>
#include <vector>

#include "program.hpp"

namespace tidemark::bench {
namespace {

struct variable;

struct operand {
  variable* of;
  double derivative;
};

/// A value, and its dependence on its inputs.
struct variable {
  variable(double computed, std::initializer_list<operand> from, std::pmr::memory_resource* memory)
      : value{computed}, operands{from, memory} {}
  double value;
  double gradient = 0;
  std::pmr::vector<operand> operands;
};

/// All values of one evaluation, in the order of computation.
class tape {
 public:
  explicit tape(std::pmr::memory_resource* memory) : memory_{memory}, variables_{memory} {}
  tape(tape const&) = delete;
  tape& operator=(tape const&) = delete;
  ~tape() {
    for (variable* each : variables_) memory_.delete_object(each);
  }

  variable* input(double value) { return record(value, {}); }
  variable* add(variable* a, variable* b) { return record(a->value + b->value, {{a, 1}, {b, 1}}); }
  variable* subtract(variable* a, variable* b) { return record(a->value - b->value, {{a, 1}, {b, -1}}); }
  variable* multiply(variable* a, variable* b) {
    return record(a->value * b->value, {{a, b->value}, {b, a->value}});
  }
  variable* logistic(variable* a) {
    const double value = 1 / (1 + std::exp(-a->value));
    return record(value, {{a, value * (1 - value)}});
  }

  void differentiate(variable& result) {
    result.gradient = 1;
    for (std::size_t i = variables_.size(); i-- > 0;) {
      for (auto [of, derivative] : variables_[i]->operands)
        of->gradient += derivative * variables_[i]->gradient;
    }
  }

 private:
  variable* record(double value, std::initializer_list<operand> from) {
    variables_.push_back(memory_.new_object<variable>(value, from, memory_.resource()));
    return variables_.back();
  }

  std::pmr::polymorphic_allocator<> memory_;
  std::pmr::deque<variable*> variables_;
};

class curve_fit final : public worker {
 public:
  curve_fit(step_memory& memory, extent size) : memory_{memory}, samples_(size == extent::full ? 2000 : 20) {
    std::mt19937 random{9};
    std::uniform_real_distribution<double> anywhere{-1, 1};
    for (auto& [x, y] : samples_) x = anywhere(random), y = 0.3 + 0.5 * std::abs(x);
    for (auto& unit : units_) {
      for (double& weight : unit) weight = anywhere(random);
    }
  }

  /// One step down the gradient of the mean squared error of `sum over units of a * logistic(b * x + c)`.
  std::uint64_t step(unsigned) override {
    bench::step<tape> recorded{memory_};
    tape& t = *recorded;
    std::array<std::array<variable*, 3>, units> weights{};
    for (std::size_t u = 0; u < units; ++u) {
      for (std::size_t k = 0; k < 3; ++k) weights[u][k] = t.input(units_[u][k]);
    }
    variable* loss = t.input(0);
    for (auto const& [x, y] : samples_) {
      variable* const input = t.input(x);
      variable* predicted = t.input(0);
      for (auto const& [a, b, c] : weights) {
        predicted = t.add(predicted, t.multiply(a, t.logistic(t.add(t.multiply(b, input), c))));
      }
      variable* const error = t.subtract(predicted, t.input(y));
      loss = t.add(loss, t.multiply(error, error));
    }
    t.differentiate(*loss);
    const double rate = 0.1 / static_cast<double>(samples_.size());
    for (std::size_t u = 0; u < units; ++u) {
      for (std::size_t k = 0; k < 3; ++k) units_[u][k] -= rate * weights[u][k]->gradient;
    }
    return std::bit_cast<std::uint64_t>(loss->value);
  }

 private:
  static constexpr std::size_t units = 4;

  step_memory& memory_;
  std::vector<std::pair<double, double>> samples_;
  std::array<std::array<double, 3>, units> units_{};
};

}  // namespace

std::unique_ptr<worker> start_tape(step_memory& memory, unsigned, extent size) {
  return std::make_unique<curve_fit>(memory, size);
}

}  // namespace tidemark::bench
