// SPDX-License-Identifier: Apache-2.0
// The octree of Barnes and Hut, "A hierarchical O(N log N) force-calculation algorithm" (1986). Threads build
// it together, each subtree by one thread, in any memory (tree_memory.hpp). Its nodes and the order of every
// sum depend only on the bodies, not on the memory or the number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory_resource>
#include <new>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include "bodies.hpp"
#include "tree_memory.hpp"

namespace nbody {

struct point_mass {
  vec3 position;
  double mass = 0;
};

/// A cell that contains bodies.
struct node {
  point_mass sum;                   ///< mass of the bodies at their center of mass
  double width = 0;                 ///< of the cell
  std::array<node*, 8> children{};  ///< by octant; null for an octant without bodies
  std::span<point_mass> bodies;     ///< of a leaf: copies in their own block
};

struct gravity {
  vec3 acceleration;
  double potential = 0;

  /// Adds the pull of a mass at a distance.
  void add(vec3 distance, double mass) {
    const double nearness = 1 / std::sqrt(dot(distance, distance) + softening * softening);
    potential -= mass * nearness;
    acceleration += (mass * nearness * nearness * nearness) * distance;
  }
  /// Subtracts the potential of a body of this mass at its own place.
  void subtract_self(double mass) { potential += mass / softening; }

  static constexpr double softening = 0.02;
};

class octree {
 public:
  static constexpr std::size_t max_leaf_bodies = 8;
  /// A thread builds subtrees of at most this many bodies. The limit does not depend on the number of
  /// threads, so the pieces of work are always the same.
  static constexpr std::size_t max_task_bodies = 512;
  /// A cell whose width over distance is below this limit counts as one mass.
  static constexpr double max_angle = 0.5;

  /// Builds the tree. @pre the previous tree was dropped
  void build(body_set const& bodies, body_order const& order, tree_memory& memory) {
    bodies_ = &bodies;
    places_ = order.places();
    tasks_.clear();
    tops_.clear();
    root_ = nullptr;
#pragma omp parallel
    memory.on_this_thread([&](std::pmr::memory_resource& local) {
#pragma omp single
      build_top({0, places_.size(), 0, order.width()}, root_, local);
#pragma omp for schedule(dynamic)
      for (task const& subtree : tasks_) *subtree.result = build_cell(subtree.whole, local);
    });
    for (node* top : tops_ | std::views::reverse) sum_children(*top);  // children come behind their parents
  }

  /// Deallocates every block, unless the memory frees all blocks at once.
  void drop(tree_memory& memory) {
    if (memory.frees_each_block()) {
#pragma omp parallel
      memory.on_this_thread([&](std::pmr::memory_resource& local) {
#pragma omp for schedule(dynamic)
        for (task const& subtree : tasks_) drop_cell(*subtree.result, local);
#pragma omp single
        for (node* top : tops_) free_node(top, local);
      });
    }
    root_ = nullptr;
  }

  /// Returns the gravity on a body of the current tree.
  [[nodiscard]] gravity gravity_at(vec3 position) const {
    gravity all;
    std::array<node const*, 7 * place_on_curve::levels + 8> waiting;
    std::size_t n = 0;
    waiting[n++] = root_;
    while (n > 0) {
      node const& here = *waiting[--n];
      const vec3 distance = here.sum.position - position;
      if (here.width * here.width < max_angle * max_angle * dot(distance, distance)) {
        all.add(distance, here.sum.mass);
        continue;
      }
      for (point_mass const& body : here.bodies) all.add(body.position - position, body.mass);
      for (node const* child : here.children) {
        if (child != nullptr) waiting[n++] = child;
      }
    }
    all.subtract_self(bodies_->mass());
    return all;
  }

  struct size {
    std::size_t nodes = 0, leaves = 0, block_bytes = 0;
  };
  [[nodiscard]] size measure() const { return measure(*root_); }

 private:
  /// A cell, as a range of bodies on the curve.
  struct cell {
    std::size_t begin, end;
    int level;  // 0: the root
    double width;
    [[nodiscard]] std::size_t size() const { return end - begin; }
  };
  struct task {
    cell whole;
    node** result;
  };

  /// Calls `found(octant, cell)` for each octant that contains bodies.
  template <class Found>
  void for_each_octant(cell const& parent, Found found) const {
    std::size_t begin = parent.begin;
    while (begin < parent.end) {
      const std::size_t octant = places_[begin].octant(parent.level);
      const auto rest = places_.subspan(begin, parent.end - begin);
      const auto is_here = [&](place_on_curve const& place) { return place.octant(parent.level) == octant; };
      const auto n = static_cast<std::size_t>(std::ranges::partition_point(rest, is_here) - rest.begin());
      found(octant, cell{begin, begin + n, parent.level + 1, parent.width / 2});
      begin += n;
    }
  }

  /// Makes the nodes of cells that are too large for one thread, and a task for each other cell.
  void build_top(cell const& here, node*& result, std::pmr::memory_resource& memory) {
    if (here.size() <= max_task_bodies || here.level == place_on_curve::levels) {
      tasks_.push_back({here, &result});
      return;
    }
    result = make_node(here, memory);
    tops_.push_back(result);
    for_each_octant(here, [&, parent = result](std::size_t octant, cell const& part) {
      build_top(part, parent->children[octant], memory);
    });
  }

  node* build_cell(cell const& here, std::pmr::memory_resource& memory) const {
    node* const made = make_node(here, memory);
    if (here.size() <= max_leaf_bodies || here.level == place_on_curve::levels) {
      point_mass* const block = allocator{&memory}.allocate_object<point_mass>(here.size());
      made->bodies = {block, here.size()};
      for (std::size_t i = 0; i < here.size(); ++i) {
        new (&block[i]) point_mass{bodies_->positions[places_[here.begin + i].body], bodies_->mass()};
        add(made->sum, block[i]);
      }
      finish(made->sum);
    } else {
      for_each_octant(here, [&](std::size_t octant, cell const& part) {
        made->children[octant] = build_cell(part, memory);
      });
      sum_children(*made);
    }
    return made;
  }

  using allocator = std::pmr::polymorphic_allocator<>;

  static node* make_node(cell const& here, std::pmr::memory_resource& memory) {
    node* const made = allocator{&memory}.new_object<node>();
    made->width = here.width;
    return made;
  }
  static void free_node(node* old, std::pmr::memory_resource& memory) {
    if (!old->bodies.empty()) {
      allocator{&memory}.deallocate_object(old->bodies.data(), old->bodies.size());
    }
    allocator{&memory}.delete_object(old);
  }
  static void drop_cell(node* here, std::pmr::memory_resource& memory) {
    for (node* child : here->children) {
      if (child != nullptr) drop_cell(child, memory);
    }
    free_node(here, memory);
  }

  // Until a sum is finished, its position holds the moment.
  static void add(point_mass& sum, point_mass const& part) {
    sum.position += part.mass * part.position;
    sum.mass += part.mass;
  }
  static void finish(point_mass& sum) { sum.position = (1 / sum.mass) * sum.position; }
  static void sum_children(node& parent) {
    for (node const* child : parent.children) {
      if (child != nullptr) add(parent.sum, child->sum);
    }
    finish(parent.sum);
  }

  static size measure(node const& here) {
    size all{1, here.bodies.empty() ? 0U : 1U, sizeof(node) + here.bodies.size_bytes()};
    for (node const* child : here.children) {
      if (child == nullptr) continue;
      const size part = measure(*child);
      all = {all.nodes + part.nodes, all.leaves + part.leaves, all.block_bytes + part.block_bytes};
    }
    return all;
  }

  body_set const* bodies_ = nullptr;
  std::span<place_on_curve const> places_;
  std::vector<task> tasks_;  // reuses its memory in each step
  std::vector<node*> tops_;
  node* root_ = nullptr;
};

static_assert(std::is_trivially_destructible_v<node>, "nodes on an arena are forgotten, not destroyed");

}  // namespace nbody
