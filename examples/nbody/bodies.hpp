// SPDX-License-Identifier: Apache-2.0
// Bodies of equal mass, initially a Plummer sphere, and their order along a space-filling curve.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>
#include <span>
#include <tuple>
#include <vector>

namespace nbody {

struct vec3 {
  double x = 0, y = 0, z = 0;

  vec3& operator+=(vec3 b) { return *this = {x + b.x, y + b.y, z + b.z}; }
  friend vec3 operator+(vec3 a, vec3 b) { return a += b; }
  friend vec3 operator-(vec3 a, vec3 b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
  friend vec3 operator*(double a, vec3 b) { return {a * b.x, a * b.y, a * b.z}; }
  friend double dot(vec3 a, vec3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
};

/// Bodies of mass 1 / n each, in units with a gravitational constant of 1.
struct body_set {
  std::vector<vec3> positions, velocities;

  [[nodiscard]] std::size_t size() const { return positions.size(); }
  [[nodiscard]] double mass() const { return 1 / static_cast<double>(size()); }
};

/// Returns a sphere of bodies in equilibrium, after Aarseth, Henon and Wielen, "A comparison of numerical
/// methods for the study of star cluster dynamics" (1974). Equal seeds give equal bodies.
inline body_set plummer_sphere(std::size_t n, std::uint64_t seed) {
  constexpr double outermost = 10;  // half of the mass is within 1.3
  std::mt19937_64 bits{seed};
  // The standard's distributions differ between libraries.
  const auto uniform = [&] { return 0x1p-53 * static_cast<double>(bits() >> 11); };
  const auto on_sphere = [&](double radius) {
    const double z = 2 * uniform() - 1, angle = 2 * std::numbers::pi * uniform();
    const double across = std::sqrt(1 - z * z);
    return radius * vec3{across * std::cos(angle), across * std::sin(angle), z};
  };
  body_set bodies;
  bodies.positions.reserve(n);
  bodies.velocities.reserve(n);
  while (bodies.size() < n) {
    const double inside = std::cbrt(uniform());  // the cube root of the mass inside the radius
    const double radius = inside / std::sqrt(1 - inside * inside);
    if (!(radius < outermost)) continue;
    double speed = 0, chance = 1;  // relative to the escape speed
    while (chance > speed * speed * std::pow(1 - speed * speed, 3.5)) {
      speed = uniform();
      chance = 0.1 * uniform();
    }
    bodies.positions.push_back(on_sphere(radius));
    bodies.velocities.push_back(on_sphere(speed * std::numbers::sqrt2 / std::pow(1 + radius * radius, 0.25)));
  }
  return bodies;
}

/// A body's place on the curve that visits the octants of a cube in turn, and recursively their octants. Each
/// level takes three bits, the root's on top. All bodies of a cell of an octree are consecutive on the curve.
struct place_on_curve {
  static constexpr int levels = 21;

  std::uint64_t key = 0;
  std::uint32_t body = 0;

  /// Returns the body's octant in a cell of this level (0: the root).
  [[nodiscard]] std::size_t octant(int level) const { return key >> 3 * (levels - 1 - level) & 7; }
  friend bool operator<(place_on_curve const& a, place_on_curve const& b) {
    return std::tie(a.key, a.body) < std::tie(b.key, b.body);
  }
};

/// The order of bodies on the curve. It depends only on the positions, not on the threads that compute it.
class body_order {
 public:
  explicit body_order(std::size_t bodies) : unsorted_(bodies), sorted_(bodies) {}

  void find(std::span<vec3 const> positions) {
    double farthest = 0;
#pragma omp parallel for reduction(max : farthest)
    for (vec3 const& at : positions)
      farthest = std::max({farthest, std::abs(at.x), std::abs(at.y), std::abs(at.z)});
    width_ = 2 * farthest;
#pragma omp parallel for
    for (std::size_t i = 0; i < positions.size(); ++i) {
      unsorted_[i] = {key_of(positions[i]), static_cast<std::uint32_t>(i)};
    }
    // Sorts into the cells of the fourth level below the root, then within each cell.
    static constexpr int shift = 3 * (place_on_curve::levels - 4);
    static constexpr std::size_t cells = 1 << 3 * 4;
    std::array<std::size_t, cells + 1> begins{};
    for (place_on_curve const& place : unsorted_) ++begins[(place.key >> shift) + 1];
    for (std::size_t cell = 0; cell < cells; ++cell) begins[cell + 1] += begins[cell];
    std::array<std::size_t, cells + 1> next = begins;
    for (place_on_curve const& place : unsorted_) sorted_[next[place.key >> shift]++] = place;
#pragma omp parallel for schedule(dynamic, 16)
    for (std::size_t cell = 0; cell < cells; ++cell) {
      std::sort(&sorted_[0] + begins[cell], &sorted_[0] + begins[cell + 1]);
    }
  }

  [[nodiscard]] std::span<place_on_curve const> places() const { return sorted_; }
  /// Width of the cube around all bodies. Its center is 0.
  [[nodiscard]] double width() const { return width_; }

 private:
  [[nodiscard]] std::uint64_t key_of(vec3 at) const {
    constexpr std::uint64_t last = (1 << place_on_curve::levels) - 1;
    const auto spread = [&](double x) {  // puts two zeros in front of each bit
      const double scaled = width_ > 0 ? (x / width_ + 0.5) * static_cast<double>(last + 1) : 0;
      std::uint64_t bits = std::min(static_cast<std::uint64_t>(std::max(scaled, 0.0)), last);
      bits = (bits | bits << 32) & 0x1f00000000ffff;
      bits = (bits | bits << 16) & 0x1f0000ff0000ff;
      bits = (bits | bits << 8) & 0x100f00f00f00f00f;
      bits = (bits | bits << 4) & 0x10c30c30c30c30c3;
      return (bits | bits << 2) & 0x1249249249249249;
    };
    return spread(at.x) << 2 | spread(at.y) << 1 | spread(at.z);
  }

  std::vector<place_on_curve> unsorted_, sorted_;
  double width_ = 0;
};

/// Returns the bodies in their order on the curve. Neighbors in space are then neighbors in memory, while few
/// bodies have crossed the cluster. Large trees are built faster, because positions are read from caches.
inline body_set along_curve(body_set const& bodies) {
  body_order order{bodies.size()};
  order.find(bodies.positions);
  body_set sorted;
  sorted.positions.reserve(bodies.size());
  sorted.velocities.reserve(bodies.size());
  for (place_on_curve const& place : order.places()) {
    sorted.positions.push_back(bodies.positions[place.body]);
    sorted.velocities.push_back(bodies.velocities[place.body]);
  }
  return sorted;
}

}  // namespace nbody
