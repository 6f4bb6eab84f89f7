// SPDX-License-Identifier: Apache-2.0
#include "picture.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "texts.hpp"

namespace tidemark::tools {
namespace {

// The area of the plot in the picture.
constexpr double width = 1200, height = 720, left = 96, right = 1090, top = 84, bottom = 640;
constexpr double max_heights = 1 << 24;        // units of the address axis; a float distinguishes this many
constexpr std::size_t outlined_blocks = 4000;  // maximum; outlines would hide more blocks
constexpr std::size_t colours = 6;

// The colors of blocks suit light and dark screens. Text and lines switch colors.
constexpr std::string_view style = R"(<style>
svg { background: var(--paper); --paper: #ffffff; --ink: #1f2328; --line: #8a929b; }
@media screen and (prefers-color-scheme: dark) { svg { --paper: #14171a; --ink: #e3e6ea; --line: #7d8590; } }
.paper { fill: var(--paper); }
text { fill: var(--ink); font: 13px system-ui, sans-serif; }
#name { font-size: 20px; }
.axes { fill: none; stroke: var(--line); }
#bound { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 8 4; }
.outlined { stroke: var(--ink); stroke-opacity: .45; stroke-width: .5; }
.outlined rect { vector-effect: non-scaling-stroke; }
.c0 { fill: #5b8ec4; } .c1 { fill: #d1963a; } .c2 { fill: #62a35d; }
.c3 { fill: #ab7dbd; } .c4 { fill: #4ca6a6; } .c5 { fill: #cc7070; }
</style>
)";

std::string escaped(std::string_view text) {
  static constexpr std::string_view specials = "&<>\"";
  static constexpr std::array<char const*, 4> entities{"&amp;", "&lt;", "&gt;", "&quot;"};
  std::string safe;
  for (char c : text) {
    const std::size_t special = specials.find(c);
    if (special == std::string_view::npos) safe += c;
    else safe += entities[special];
  }
  return safe;
}

/// Formats a coordinate with at most two decimals.
std::string place_text(double place) {
  std::string text = decimal_text(place, 2);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string text_at(double x, double y, char const* anchor, std::string const& text) {
  return "<text x=\"" + place_text(x) + "\" y=\"" + place_text(y) + "\" text-anchor=\"" + anchor + "\">" +
         escaped(text) + "</text>\n";
}

class drawing {
 public:
  drawing(plan_file const& file, memory_plan const& made) : file_{file}, made_{made} {
    for (lifetime const& block : file.blocks) {
      moments_.push_back(block.lower);
      moments_.push_back(block.upper);
    }
    std::ranges::sort(moments_);
    moments_.erase(std::ranges::unique(moments_).begin(), moments_.end());
    steps_ = static_cast<double>(std::max<std::size_t>(2, moments_.size()) - 1);
    top_bytes_ = static_cast<double>(std::max<std::size_t>(1, made.height));
    heights_ = std::min(max_heights, top_bytes_);
  }

  std::string document(std::string const& title) {
    svg_ = R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 )" + place_text(width) + " " +
           place_text(height) + R"(" role="img" aria-labelledby="title description">)" +
           "\n<title id=\"title\">" + escaped(title) + "</title>\n<desc id=\"description\">" + summary() +
           ". A rectangle is a block, from where it begins to where it ends across, and the bytes it has "
           "upwards; "
           "pointing at it shows its id, size, lifetime and offset.</desc>\n";
    svg_ += style;
    svg_ += "<path class=\"paper\" d=\"M0 0H" + place_text(width) + "V" + place_text(height) + "H0z\"/>\n";
    svg_ += "<text id=\"name\" x=\"" + place_text(left) + "\" y=\"34\">" + escaped(title) + "</text>\n";
    svg_ += text_at(left, 58, "start", summary());
    draw_blocks();
    draw_address_axis();
    draw_time_axis();
    draw_bound();
    return std::move(svg_) + "</svg>\n";
  }

 private:
  [[nodiscard]] std::string summary() const {
    return number_text(file_.blocks.size()) + " blocks in " + bytes_text(made_.height) + ", bound " +
           bytes_text(made_.lower_bound) + ", ratio " + decimal_text(made_.ratio(), 4);
  }

  [[nodiscard]] std::size_t step_of(std::uint64_t moment) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(moments_, moment) - moments_.begin());
  }
  /// Converts bytes to whole units of the address axis, so that adjacent blocks touch in the picture.
  [[nodiscard]] std::size_t height_of(std::size_t bytes) const {
    return static_cast<std::size_t>(std::llround(static_cast<double>(bytes) / top_bytes_ * heights_));
  }
  [[nodiscard]] static double across(double share) { return left + share * (right - left); }
  [[nodiscard]] double up(double bytes) const { return bottom - bytes / top_bytes_ * (bottom - top); }

  void draw_blocks() {
    std::array<char, 128> matrix{};
    std::snprintf(matrix.data(), matrix.size(), "matrix(%.9g 0 0 %.9g %g %g)", (right - left) / steps_,
                  -(bottom - top) / heights_, left, bottom);
    const bool has_outlines = file_.blocks.size() <= outlined_blocks;
    svg_ += std::string{"<g id=\"blocks\""} + (has_outlines ? " class=\"outlined\"" : "") + " transform=\"" +
            matrix.data() + "\">\n";
    // Grouped by color, so that each color is written once.
    for (std::size_t colour = 0; colour < std::min(colours, file_.blocks.size()); ++colour) {
      svg_ += "<g class=\"c" + std::to_string(colour) + "\">\n";
      for (std::size_t i = colour; i < file_.blocks.size(); i += colours) draw_block(i);
      svg_ += "</g>\n";
    }
    svg_ += "</g>\n";
  }

  void draw_block(std::size_t i) {
    lifetime const& block = file_.blocks[i];
    const std::size_t offset = made_.offsets[i], x = step_of(block.lower), y = height_of(offset);
    const auto add = [&](char const* before, std::uint64_t number) {
      svg_.append(before).append(std::to_string(number));
    };
    add("<rect x=\"", x);
    add("\" y=\"", y);
    add("\" width=\"", step_of(block.upper) - x);
    add("\" height=\"", height_of(offset + block.size) - y);
    svg_.append("\"><title>").append(escaped(file_.ids[i]));
    add(": ", block.size);
    add(" B, ", block.lower);
    add(" to ", block.upper);
    add(", at ", offset);
    svg_ += "</title></rect>\n";
  }

  void draw_address_axis() {
    const byte_unit unit = unit_of(made_.height);
    const double least = top_bytes_ / unit.bytes / 6;  // of a tick, in this unit
    double step = std::pow(10.0, std::floor(std::log10(least)));
    for (double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
      if (step < least) step *= factor;
    }
    if (unit.bytes == 1) step = std::max(step, 1.0);
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
    std::string ticks;
    const auto steps = static_cast<int>(top_bytes_ / unit.bytes / step + 1e-9);
    for (int i = 0; i <= steps; ++i) {
      const double at = i * step;
      const double y = up(at * unit.bytes);
      ticks += "M" + place_text(left) + " " + place_text(y) + "h-6";
      svg_ += text_at(left - 10, y + 4, "end", decimal_text(at, decimals));
    }
    svg_ += "<path class=\"axes\" d=\"M" + place_text(left) + " " + place_text(top) + "V" +
            place_text(bottom) + "H" + place_text(right) + ticks + "\"/>\n";
    const std::string y = place_text((top + bottom) / 2);
    svg_ += "<text x=\"24\" y=\"" + y + "\" text-anchor=\"middle\" transform=\"rotate(-90 24 " + y +
            ")\">address (" + unit.name + ")</text>\n";
  }

  void draw_time_axis() {
    const std::size_t last = moments_.empty() ? 0 : moments_.size() - 1;
    constexpr std::size_t long_number = 1'000'000'000;
    const std::size_t labels = std::min<std::size_t>(last, last != 0 && moments_[last] > long_number ? 4 : 8);
    std::string ticks;
    for (std::size_t label = 0; !moments_.empty() && label <= labels; ++label) {
      const std::size_t step = labels == 0 ? 0 : label * last / labels;
      const double x = across(static_cast<double>(step) / steps_);
      ticks += "M" + place_text(x) + " " + place_text(bottom) + "v6";
      svg_ += text_at(x, bottom + 22, "middle", number_text(moments_[step]));
    }
    svg_ += "<path class=\"axes\" d=\"" + ticks + "\"/>\n";
    svg_ +=
        text_at((left + right) / 2, bottom + 50, "middle",
                "time: one step for each moment at which a block begins or ends, labelled with the moment");
  }

  void draw_bound() {
    const double y = up(static_cast<double>(made_.lower_bound));
    const byte_unit unit = unit_of(made_.lower_bound);
    svg_ += "<line id=\"bound\" x1=\"" + place_text(left) + "\" y1=\"" + place_text(y) + "\" x2=\"" +
            place_text(right) + "\" y2=\"" + place_text(y) + "\"/>\n";
    svg_ += text_at(right + 8, y - 3, "start", "bound");
    svg_ +=
        text_at(right + 8, y + 13, "start",
                decimal_text(static_cast<double>(made_.lower_bound) / unit.bytes, unit.bytes == 1 ? 0 : 1) +
                    " " + unit.name);
  }

  plan_file const& file_;
  memory_plan const& made_;
  std::vector<std::uint64_t> moments_;  // all begins and ends, sorted
  double steps_;                        // from the first moment to the last
  double top_bytes_;                    // of the address axis
  double heights_;                      // units of the address axis
  std::string svg_;
};

}  // namespace

std::string picture_of(plan_file const& file, memory_plan const& made, std::string const& title) {
  return drawing{file, made}.document(title);
}

}  // namespace tidemark::tools
