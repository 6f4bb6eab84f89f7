// SPDX-License-Identifier: Apache-2.0
#include "plan_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>

#include "table.hpp"

namespace tidemark::tools {
namespace {

enum column : std::size_t { id, lower, upper, size, alignment, offset };
constexpr std::array<char const*, 6> column_names{"id", "lower", "upper", "size", "alignment", "offset"};
constexpr std::size_t required_columns = 4;

/// Returns the UTF-8 length in bytes of the first character of a text. Returns 0 for invalid UTF-8, control
/// characters, and the two characters that XML forbids.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7F ? 1 : 0;
  const std::size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  std::uint32_t character = byte(0) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
    character = character << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t least[]{0, 0, 0xA0, 0x800, 0x10000};  // 0x80 to 0x9F are controls
  const bool is_surrogate = character >= 0xD800 && character <= 0xDFFF;
  const bool is_character = byte(0) >= 0xC2 && byte(0) <= 0xF4 && character >= least[length] &&
                            character <= 0x10FFFF && !is_surrogate && (character & 0xFFFEU) != 0xFFFE;
  return is_character ? length : 0;
}

bool is_text(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

/// Reads a file of lifetimes as planner/docs/formats.md defines it.
class lifetimes_reader {
 public:
  explicit lifetimes_reader(std::string const& path) : rows_{path, ""} { read_header(); }

  plan_file read() {
    while (rows_.next_row(fields_)) {
      file_.blocks.push_back(block());
      file_.ids.emplace_back(field(id));
      file_.rows.push_back(rows_.line_text());
    }
    return std::move(file_);
  }

 private:
  void read_header() {
    file_.header = rows_.line_text();
    const std::vector<std::string_view> names = rows_.fields();
    for (std::size_t place = 0; place < names.size(); ++place) {
      const auto* const known = std::ranges::find(column_names, names[place],
                                                  [](char const* name) { return std::string_view{name}; });
      if (known == column_names.end()) {
        rows_.fail("unknown column '" + printable(names[place]) +
                   "'; the columns are id, lower, upper, size, alignment and offset");
      }
      std::optional<std::size_t>& seen = places_[static_cast<std::size_t>(known - column_names.begin())];
      if (seen) rows_.fail("the column '" + std::string{*known} + "' appears twice");
      seen = place;
    }
    for (std::size_t i = 0; i < required_columns; ++i) {
      if (!places_[i]) rows_.fail("the column '" + std::string{column_names[i]} + "' is missing");
    }
    fields_.resize(names.size());
    file_.offset_column = places_[offset];
  }

  /// Returns an empty text if the column does not exist.
  [[nodiscard]] std::string_view field(column which) const {
    return places_[which] ? fields_[*places_[which]] : std::string_view{};
  }
  [[nodiscard]] std::size_t number(column which) const {
    return rows_.number(column_names[which], field(which));
  }

  [[noreturn]] void fail(column which, std::string const& reason) const {
    rows_.fail(std::string{column_names[which]} + " is " + std::string{field(which)} + ", " + reason);
  }

  lifetime block() {
    if (field(id).empty()) rows_.fail("id is empty");
    if (field(id).find('"') != std::string_view::npos || !is_text(field(id))) {
      rows_.fail("id is '" + printable(field(id)) + "', which has a quote or invalid UTF-8 in it");
    }
    lifetime read{.lower = number(lower), .upper = number(upper), .size = number(size)};
    if (read.upper < read.lower) fail(upper, "below lower, " + std::to_string(read.lower));
    if (!field(alignment).empty()) read.alignment = number(alignment);
    if (!std::has_single_bit(read.alignment)) fail(alignment, "not a power of two");
    if (field(offset).empty()) return read;
    read.offset = number(offset);
    if (*read.offset % read.alignment != 0) {
      fail(offset, "not a multiple of the alignment, " + std::to_string(read.alignment));
    }
    return read;
  }

  table rows_;
  std::array<std::optional<std::size_t>, column_names.size()> places_;  // positions in the file
  std::vector<std::string_view> fields_;                                // of the row
  plan_file file_;
};

/// Returns the row of a block without further columns.
std::string row_of(std::string const& id, lifetime const& block) {
  return id + "," + std::to_string(block.lower) + "," + std::to_string(block.upper) + "," +
         std::to_string(block.size);
}

/// Appends a row with `field` at a place, or behind the last field.
void append_row(std::string& text, std::string_view row, std::optional<std::size_t> place,
                std::string_view field) {
  if (!place) {
    text.append(row).append(",").append(field);
  } else {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < *place; ++i) begin = row.find(',', begin) + 1;
    const std::size_t end = std::min(row.find(',', begin), row.size());
    text.append(row.substr(0, begin)).append(field).append(row.substr(end));
  }
  text += '\n';
}

}  // namespace

void plan_file::add(std::string id, lifetime const& block) {
  rows.push_back(row_of(id, block));
  ids.push_back(std::move(id));
  blocks.push_back(block);
}

void plan_file::end_at(std::size_t number, std::uint64_t upper) {
  blocks[number].upper = upper;
  rows[number] = row_of(ids[number], blocks[number]);
}

std::string plan_file::text() const {
  std::string all = header + "\n";
  for (std::string const& row : rows) all.append(row).append("\n");
  return all;
}

std::string plan_file::text(std::span<std::size_t const> offsets) const {
  std::string all;
  append_row(all, header, offset_column, "offset");
  for (std::size_t i = 0; i < rows.size(); ++i)
    append_row(all, rows[i], offset_column, std::to_string(offsets[i]));
  return all;
}

plan_file read_lifetimes(std::string const& path) { return lifetimes_reader{path}.read(); }

}  // namespace tidemark::tools
