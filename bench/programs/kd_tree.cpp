// SPDX-License-Identifier: Apache-2.0
// A simulation's step: particles move, a k-d tree of them is built by insertion, and neighbors are counted.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <random>
#include <vector>

#include "program.hpp"

namespace tidemark::bench {
namespace {

using point = std::array<float, 3>;

struct box {
  point low, high;
};

/// A leaf has at most one point. A second point splits it in the middle of its box.
struct node {
  point here{};  // of a leaf that is not empty
  float split = 0;
  std::uint8_t axis = 0;
  bool is_empty = true;
  std::array<node*, 2> below{};  // both null: a leaf
};

class kd_tree {
 public:
  explicit kd_tree(std::pmr::memory_resource* memory) : memory_{memory}, root_{memory_.new_object<node>()} {}
  kd_tree(kd_tree const&) = delete;
  kd_tree& operator=(kd_tree const&) = delete;
  ~kd_tree() { destroy(root_); }

  void insert(point const& added) {
    box bounds{{0, 0, 0}, {1, 1, 1}};
    node* top = root_;
    for (unsigned depth = 0; depth < depth_max; ++depth) {
      if (top->below[0] == nullptr) {
        if (top->is_empty) break;
        divide(*top, bounds, depth % 3);
      }
      const bool is_high = added[top->axis] >= top->split;
      (is_high ? bounds.low : bounds.high)[top->axis] = top->split;
      top = top->below[is_high];
    }
    top->here = added;
    top->is_empty = false;
  }

  [[nodiscard]] std::uint64_t count_within(point const& centre, float radius) const {
    return count_below(*root_, centre, radius);
  }

 private:
  static constexpr unsigned depth_max = 60;  // equal points count as one

  void divide(node& leaf, box const& bounds, unsigned axis) {
    leaf.axis = static_cast<std::uint8_t>(axis);
    leaf.split = (bounds.low[axis] + bounds.high[axis]) / 2;
    for (node*& below : leaf.below) below = memory_.new_object<node>();
    node& moved = *leaf.below[leaf.here[axis] >= leaf.split];
    moved.here = leaf.here;
    moved.is_empty = false;
  }

  static std::uint64_t count_below(node const& top, point const& centre, float radius) {
    if (top.below[0] != nullptr) {
      const float distance = centre[top.axis] - top.split;
      std::uint64_t count = 0;
      if (distance < radius) count += count_below(*top.below[0], centre, radius);
      if (distance >= -radius) count += count_below(*top.below[1], centre, radius);
      return count;
    }
    if (top.is_empty) return 0;
    float square = 0;
    for (std::size_t k = 0; k < 3; ++k) square += (top.here[k] - centre[k]) * (top.here[k] - centre[k]);
    return square < radius * radius ? 1 : 0;
  }

  void destroy(node* top) {
    if (top == nullptr) return;
    for (node* below : top->below) destroy(below);
    memory_.delete_object(top);
  }

  std::pmr::polymorphic_allocator<> memory_;
  node* root_;
};

class particles final : public worker {
 public:
  particles(step_memory& memory, extent size)
      : memory_{memory}, points_(size == extent::full ? 60'000 : 300), speeds_(points_.size()) {
    std::mt19937 random{5};
    std::uniform_real_distribution<float> anywhere{0, 1}, speed{-0.01F, 0.01F};
    for (point& each : points_) each = {anywhere(random), anywhere(random), anywhere(random)};
    for (point& each : speeds_) each = {speed(random), speed(random), speed(random)};
  }

  std::uint64_t step(unsigned) override {
    for (std::size_t i = 0; i < points_.size(); ++i) {
      for (std::size_t k = 0; k < 3; ++k) {
        const float moved = points_[i][k] + speeds_[i][k];
        points_[i][k] = moved - std::floor(moved);  // periodic boundary
      }
    }
    bench::step<kd_tree> tree{memory_};
    for (point const& each : points_) tree->insert(each);
    std::uint64_t neighbours = 0;
    for (std::size_t i = 0; i < points_.size(); i += 100) neighbours += tree->count_within(points_[i], 0.03F);
    return neighbours;
  }

 private:
  step_memory& memory_;
  std::vector<point> points_, speeds_;
};

}  // namespace

std::unique_ptr<worker> start_kd_tree(step_memory& memory, unsigned, extent size) {
  return std::make_unique<particles>(memory, size);
}

}  // namespace tidemark::bench
