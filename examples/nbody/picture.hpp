// SPDX-License-Identifier: Apache-2.0
// Writes a picture of bodies as an SVG file, which every browser shows.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include "bodies.hpp"

namespace nbody {

/// Draws the middle of the cluster along its third axis: a dot for each body, slow bodies red and fast bodies
/// blue.
/// @throws std::system_error if the file cannot be written
inline void write_picture(body_set const& bodies, std::string const& path) {
  constexpr double half_width = 4, pixels = 800;
  static constexpr std::array colours{"#ff5533", "#ffbb66", "#ffffff", "#88bbff"};
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closer{std::fopen(path.c_str(), "w"), std::fclose};
  std::FILE* const file = closer.get();
  if (file == nullptr) throw std::system_error{errno, std::generic_category(), path};
  std::fprintf(file,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\">\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"#05060f\"/>\n",
               pixels, pixels);
  for (std::size_t colour = 0; colour < colours.size(); ++colour) {
    // One path for each color. A line of length 0 with round ends is a dot.
    std::fprintf(file, "<path stroke=\"%s\" stroke-linecap=\"round\" stroke-width=\"1.5\" d=\"",
                 colours[colour]);
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      const double speed = std::sqrt(dot(bodies.velocities[i], bodies.velocities[i]));
      if (std::min(static_cast<std::size_t>(speed / 0.3), colours.size() - 1) != colour) continue;
      const double x = bodies.positions[i].x / half_width, y = bodies.positions[i].y / half_width;
      if (std::abs(x) < 1 && std::abs(y) < 1) {
        std::fprintf(file, "M%.1f %.1fh0", 0.5 * pixels * (1 + x), 0.5 * pixels * (1 - y));
      }
    }
    std::fputs("\"/>\n", file);
  }
  std::fputs("</svg>\n", file);
  if (std::fflush(file) != 0 || std::ferror(file) != 0) {
    throw std::system_error{errno, std::generic_category(), path};
  }
}

}  // namespace nbody
