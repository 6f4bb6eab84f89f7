// SPDX-License-Identifier: Apache-2.0
// A star cluster that moves under its own gravity, by the leapfrog method. Each step builds its own tree.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "bodies.hpp"
#include "octree.hpp"
#include "tree_memory.hpp"

namespace nbody {

struct energy {
  double kinetic = 0, potential = 0;
  [[nodiscard]] double total() const { return kinetic + potential; }
};

/// Seconds of the parts of a step.
struct step_times {
  double order = 0, build = 0, forces = 0, drop = 0, whole = 0;
};

class stopwatch {
 public:
  /// Returns the seconds since the last lap.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(begin_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class simulation {
 public:
  static constexpr double time_step = 0.01;  // a body crosses the cluster in about 3

  simulation(std::size_t n, tree_memory& memory)
      : memory_{memory}, bodies_{along_curve(plummer_sphere(n, 1))}, order_{n}, pulls_(n) {}

  /// Computes the forces at the initial positions. Call before the first step.
  void begin() {
    memory_.begin_step();
    attract();
    first_size_ = tree_.measure();
    tree_.drop(memory_);
    memory_.end_step();
  }

  step_times step() {
    stopwatch whole;
    kick();
#pragma omp parallel for
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      bodies_.positions[i] += time_step * bodies_.velocities[i];
    }
    memory_.begin_step();
    step_times times = attract();
    stopwatch drop;
    tree_.drop(memory_);
    memory_.end_step();
    times.drop = drop.lap();
    kick();
    times.whole = whole.lap();
    return times;
  }

  [[nodiscard]] body_set const& bodies() const { return bodies_; }
  [[nodiscard]] octree::size const& first_size() const { return first_size_; }

  [[nodiscard]] energy energy_now() const {
    energy now;
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      now.kinetic += 0.5 * bodies_.mass() * dot(bodies_.velocities[i], bodies_.velocities[i]);
      now.potential += 0.5 * bodies_.mass() * pulls_[i].potential;
    }
    return now;
  }

  struct accuracy {
    std::size_t bodies = 0;
    double mean_error = 0, max_error = 0;  // of a body's acceleration, relative to its length
  };
  /// Compares the current accelerations of some bodies, spread over the cluster, with direct sums.
  [[nodiscard]] accuracy compare_with_direct_summation() const {
    std::vector<double> errors(std::min<std::size_t>(bodies_.size(), 256));
#pragma omp parallel for
    for (std::size_t i = 0; i < errors.size(); ++i) {
      const std::size_t body = i * bodies_.size() / errors.size();
      gravity direct;
      for (vec3 const& other : bodies_.positions) {
        direct.add(other - bodies_.positions[body], bodies_.mass());
      }
      const vec3 difference = pulls_[body].acceleration - direct.acceleration;
      errors[i] = std::sqrt(dot(difference, difference) / dot(direct.acceleration, direct.acceleration));
    }
    accuracy found{.bodies = errors.size()};
    for (double error : errors) {
      found.mean_error += error / static_cast<double>(errors.size());
      found.max_error = std::max(found.max_error, error);
    }
    return found;
  }

 private:
  /// Builds the tree and computes the force on each body.
  step_times attract() {
    stopwatch part;
    step_times times;
    order_.find(bodies_.positions);
    times.order = part.lap();
    tree_.build(bodies_, order_, memory_);
    times.build = part.lap();
    // Neighbors on the curve visit nearly the same nodes.
    const std::span<place_on_curve const> places = order_.places();
#pragma omp parallel for schedule(dynamic, 64)
    for (place_on_curve const& place : places) {
      pulls_[place.body] = tree_.gravity_at(bodies_.positions[place.body]);
    }
    times.forces = part.lap();
    return times;
  }

  /// Changes velocities by half a step.
  void kick() {
#pragma omp parallel for
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      bodies_.velocities[i] += 0.5 * time_step * pulls_[i].acceleration;
    }
  }

  tree_memory& memory_;
  body_set bodies_;
  body_order order_;
  std::vector<gravity> pulls_;
  octree tree_;
  octree::size first_size_;
};

}  // namespace nbody
