// SPDX-License-Identifier: Apache-2.0
// Reads the log of ggml's graph allocator. The log has an address for each allocation and deallocation. Names
// need not be unique, and a block written in place is freed under another name.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "imported_lifetimes.hpp"
#include "text_cursor.hpp"

namespace tidemark::tools {
namespace {

class ggml_reader {
 public:
  explicit ggml_reader(std::string const& path) : rows_{path, ""} {}

  imported_lifetimes read() {
    do {
      read_line();
    } while (rows_.next_line());
    if (found_.file.blocks.empty())
      rows_.fail("no line says 'allocating': is it a log of ggml with AT_PRINTF?");
    // Blocks live at the end were never freed: they are outputs of the graph.
    for (auto const& [place, number] : live_) found_.file.end_at(number, rows_.line());
    if (chunks_.size() > 1)
      found_.left_out = "the limits of ggml's " + std::to_string(chunks_.size()) + " chunks";
    if (tails_ != 0) {
      found_.left_out += (found_.left_out.empty() ? "" : ", and ") + std::to_string(tails_) +
                         " tails that ggml frees before their blocks";
    }
    for (auto const& [chunk, height] : chunks_) found_.height += height;
    return std::move(found_);
  }

 private:
  using address = std::pair<std::size_t, std::size_t>;  // chunk and offset

  void read_line() {
    std::string_view const line = rows_.line_text();
    if (line.find(": allocating ") != std::string_view::npos) return allocate();
    if (line.find(": freeing ") != std::string_view::npos) return free();
    if (line.starts_with("freeing extra ")) ++tails_;
  }

  /// FUNCTION: allocating NAME (SIZE bytes) - block N, offset OFFSET[, chunk CHUNK]
  void allocate() {
    text_cursor text{rows_};
    text.until(": allocating ");
    std::string_view const head = text.until(" bytes) - block ", true);
    const std::size_t bracket = head.rfind(" (");
    if (bracket == std::string_view::npos) rows_.fail("there is no size before ' bytes)'");
    const std::size_t size = rows_.number("size", head.substr(bracket + 2));
    text.until(", offset ");
    const std::size_t offset = text.number("offset");
    const std::size_t chunk = text.skip_if(", chunk ") ? text.number("chunk") : 0;
    if (offset > max_offset || size > max_offset) rows_.fail("the block ends above 2^62");
    require_free({chunk, offset}, size);
    live_[{chunk, offset}] = found_.file.blocks.size();
    found_.lines.push_back(rows_.line());
    found_.file.add(id_of(head.substr(0, bracket)),
                    {.lower = rows_.line(), .upper = rows_.line(), .size = size});
    std::size_t& height = chunks_[chunk];
    height = std::max(height, offset + size);
  }

  /// FUNCTION: freeing NAME at OFFSET (... or FUNCTION: freeing NAME at {chunk=CHUNK, offset=OFFSET} (...
  void free() {
    text_cursor text{rows_};
    text.until(": freeing ");
    text.until(" at ", true);
    std::size_t chunk = 0;
    if (text.skip_if("{chunk=")) {
      chunk = text.number("chunk");
      text.skip(", offset=");
    }
    const std::size_t offset = text.number("offset");
    const auto freed = live_.find({chunk, offset});
    if (freed == live_.end()) {
      rows_.fail("no block is live at offset " + std::to_string(offset) + of_chunk(chunk) + ": " + one_graph);
    }
    found_.file.end_at(freed->second, rows_.line());
    live_.erase(freed);
  }

  /// Rejects an allocation over a live block, because the log then has several graphs or buffers. After a
  /// block's tail was freed, only a common first byte counts as an overlap.
  void require_free(address at, std::size_t size) const {
    const auto next = live_.lower_bound(at);
    const auto begins_within = [&](auto const& block) {
      return block->first.first == at.first &&
             block->first.second < at.second + std::max<std::size_t>(size, 1);
    };
    bool overlaps = next != live_.end() && (tails_ == 0 ? begins_within(next) : next->first == at);
    auto under = next;
    if (!overlaps && next != live_.begin() && tails_ == 0) {
      under = std::prev(next);
      overlaps = under->first.first == at.first &&
                 under->first.second + found_.file.blocks[under->second].size > at.second;
    }
    if (!overlaps) return;
    rows_.fail("the block shares bytes with " + printable(found_.file.ids[under->second]) + " of line " +
               std::to_string(found_.lines[under->second]) + ", which is live: " + one_graph);
  }

  static std::string of_chunk(std::size_t chunk) {
    return chunk == 0 ? "" : " of chunk " + std::to_string(chunk);
  }

  static constexpr char const* one_graph = "keep the lines of one graph and one buffer";
  static constexpr std::size_t max_offset = std::size_t{1} << 62U;

  table rows_;
  imported_lifetimes found_;
  std::map<address, std::size_t> live_;        // block numbers
  std::map<std::size_t, std::size_t> chunks_;  // height of each chunk
  std::size_t tails_ = 0;
};

}  // namespace

std::string id_of(std::string_view name) {
  std::string id = printable(name, name.size());
  for (char& c : id) {
    if (c == '"' || c == ',') c = c == ',' ? ';' : '?';
  }
  return id.empty() ? "unnamed" : id;
}

imported_lifetimes read_ggml_log(std::string const& path) { return ggml_reader{path}.read(); }

}  // namespace tidemark::tools
