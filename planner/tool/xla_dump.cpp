// SPDX-License-Identifier: Apache-2.0
// Reads an XLA buffer assignment, which has the sizes and places of values, and the live ranges of the same
// module.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "imported_lifetimes.hpp"
#include "text_cursor.hpp"

namespace tidemark::tools {
namespace {

/// An inclusive range of moments of the schedule.
struct live_range {
  std::size_t first = 0, last = 0;
};

struct value {
  std::string name;  // of the instruction, with the index in its tuple
  std::size_t size = 0, offset = 0;
  std::size_t line = 0;
};

struct allocation {
  std::size_t size = 0;
  bool temporary = false;
  std::size_t line = 0;
  std::vector<value> values;
};

class xla_reader {
 public:
  explicit xla_reader(std::string const& path) : rows_{path, ""} {}

  imported_lifetimes read(std::optional<std::size_t> wanted) {
    do {
      read_line();
    } while (rows_.next_line());
    if (allocations_.empty()) rows_.fail("no line begins with 'allocation': is it an XLA buffer assignment?");
    if (!has_ranges_) {
      rows_.fail(
          "there is no 'BufferLiveRange:': newer releases of XLA write it to a file of its own, "
          "*-live-range.txt, which is to follow in the same text");
    }
    const std::size_t number = wanted ? *wanted : largest_temporary();
    const auto chosen = allocations_.find(number);
    if (chosen == allocations_.end()) rows_.fail("allocation " + std::to_string(number) + " does not exist");
    place(chosen->second);
    const std::size_t others = allocations_.size() - 1;
    found_.left_out = std::to_string(others) + (others == 1 ? " allocation" : " allocations") +
                      " other than " + std::to_string(number);
    found_.height = chosen->second.size;
    if (!operands_.empty()) found_.any_order_bound = bound_of_any_order(chosen->second);
    return std::move(found_);
  }

 private:
  void read_line() {
    std::string_view const line = rows_.line_text();
    if (in_ranges_) return read_range();
    if (line.starts_with("allocation ")) return read_allocation();
    if (line.starts_with(" value: <") && current_ != nullptr) return read_value();
    if (line.starts_with('<')) return begin_uses();
    if (line.starts_with("  ") && in_uses_) return read_use();
    in_uses_ = line == " uses:";
    if (line == "  BufferLiveRange:") in_ranges_ = has_ranges_ = true;
  }

  /// allocation N: [..., ]size BYTES[, ...]:
  void read_allocation() {
    text_cursor text{rows_};
    text.skip("allocation ");
    const std::size_t number = text.number("allocation");
    text.skip(": ");
    text.until("size ");
    const std::size_t size = text.number("size");
    const bool temporary = text.rest().find(", preallocated-temp") != std::string_view::npos;
    const auto [at, is_new] = allocations_.try_emplace(number, allocation{size, temporary, rows_.line(), {}});
    if (!is_new) {
      rows_.fail("allocation " + std::to_string(number) + " appears twice, first in line " +
                 std::to_string(at->second.line) + ": keep one module");
    }
    current_ = &at->second;
  }

  /// ` value: <ID NAME[{INDEX}][ (phi)][ @COLOR]> (size=BYTES,offset=OFFSET): SHAPE`
  void read_value() {
    text_cursor text{rows_};
    text.skip(" value: <");
    static_cast<void>(text.number("the id"));
    text.skip(" ");
    std::string name = name_of(text.until("> (size="));
    value read{std::move(name), text.number("size"), 0, rows_.line()};
    text.skip(",offset=");
    read.offset = text.number("offset");
    text.skip(")");
    if (read.offset > current_->size || read.size > current_->size - read.offset) {
      rows_.fail("the value ends above its allocation, which has " + std::to_string(current_->size) +
                 " bytes");
    }
    current_->values.push_back(std::move(read));
  }

  /// `<ID NAME[{INDEX}][ (phi)][ @COLOR]>`: the value whose positions and uses follow, below the allocations.
  void begin_uses() {
    text_cursor text{rows_};
    text.skip("<");
    static_cast<void>(text.number("the id"));
    text.skip(" ");
    user_of_ = name_of(text.until(">"));
    in_uses_ = false;
  }

  /// `  INSTRUCTION, operand N[ {INDEX}]`
  void read_use() {
    text_cursor text{rows_};
    text.skip("  ");
    if (text.rest() == "(none)") return;
    operands_[std::string{text.until(", operand ")}].push_back(user_of_);
  }

  /// Returns the largest sum of sizes that one instruction reads and writes, which are live at once in any
  /// order. A result may reuse the place of an operand that is at least as large, so only larger results
  /// count.
  [[nodiscard]] std::size_t bound_of_any_order(allocation const& chosen) const {
    std::map<std::string_view, value const*> by_name;
    std::map<std::string_view, std::vector<value const*>> results;  // by instruction
    for (value const& each : chosen.values) {
      by_name[each.name] = &each;
      results[std::string_view{each.name}.substr(0, each.name.find('{'))].push_back(&each);
    }
    std::size_t bound = 0;
    for (auto const& [instruction, names] : operands_) {
      std::map<std::size_t, std::size_t> sizes;  // by place: values of one place share a buffer
      for (std::string const& name : names) {
        if (const auto read = by_name.find(name); read != by_name.end()) {
          std::size_t& size = sizes[read->second->offset];
          size = std::max(size, read->second->size);
        }
      }
      std::size_t sum = 0, largest = 0;
      for (auto const& [offset, size] : sizes) {
        sum += size;
        largest = std::max(largest, size);
      }
      if (const auto written = results.find(instruction); written != results.end()) {
        for (value const* result : written->second) sum += result->size > largest ? result->size : 0;
      }
      bound = std::max(bound, sum);
    }
    return bound;
  }

  /// Returns the value's name in the form of live ranges: NAME{INDEX}, also without a tuple.
  static std::string name_of(std::string_view text) {
    std::string name{text.substr(0, text.find(' '))};
    if (!name.ends_with('}')) name += "{}";
    return name;
  }

  /// `    NAME{INDEX}:FIRST-LAST`
  void read_range() {
    if (!rows_.line_text().starts_with("    ")) {
      in_ranges_ = false;
      return;
    }
    text_cursor text{rows_};
    text.skip("    ");
    std::string name{text.until("}:")};
    name += '}';
    live_range range;
    range.first = text.number("the first moment");
    text.skip("-");
    range.last = text.number("the last moment");
    if (range.last + 1 == 0) rows_.fail("the last moment is 2^64 - 1; the maximum is 2^64 - 2");
    if (range.last < range.first) {
      rows_.fail("the range ends at " + std::to_string(range.last) + ", before " +
                 std::to_string(range.first));
    }
    if (!ranges_.emplace(name, range).second)
      rows_.fail(printable(name) + " has a range already: keep one module");
  }

  [[nodiscard]] std::size_t largest_temporary() const {
    auto largest = allocations_.end();
    for (auto at = allocations_.begin(); at != allocations_.end(); ++at) {
      if (at->second.temporary && (largest == allocations_.end() || at->second.size > largest->second.size))
        largest = at;
    }
    if (largest == allocations_.end())
      rows_.fail("no allocation is preallocated-temp: --allocation names one");
    return largest->first;
  }

  /// Places the values as blocks. Values of one place whose ranges meet become one block, because XLA usually
  /// must keep them together, such as the state of a loop. The live sum of each moment stays the same.
  void place(allocation const& chosen) {
    std::vector<std::pair<value const*, live_range>> ordered;
    for (value const& each : chosen.values) {
      const auto range = ranges_.find(each.name);
      if (range == ranges_.end()) {
        rows_.fail_at(each.line, printable(each.name) + " has no live range");
      }
      ordered.emplace_back(&each, range->second);
    }
    std::ranges::sort(ordered, {}, [](auto const& entry) {
      return std::tuple{entry.first->offset, entry.first->size, entry.second.first, entry.second.last};
    });
    value const* before = nullptr;
    for (auto const& [each, range] : ordered) {
      if (before != nullptr && before->offset == each->offset && before->size == each->size &&
          range.first <= found_.file.blocks.back().upper) {
        found_.file.end_at(found_.file.blocks.size() - 1,
                           std::max(found_.file.blocks.back().upper, range.last + 1));
      } else {
        found_.file.add(id_of(each->name),
                        {.lower = range.first, .upper = range.last + 1, .size = each->size});
        found_.lines.push_back(each->line);
      }
      before = each;
    }
  }

  table rows_;
  imported_lifetimes found_;
  std::map<std::size_t, allocation> allocations_;  // by number
  allocation* current_ = nullptr;                  // allocation whose values follow
  std::map<std::string, live_range> ranges_;       // by name
  bool in_ranges_ = false, has_ranges_ = false;
  std::map<std::string, std::vector<std::string>> operands_;  // names of values, by instruction
  std::string user_of_;                                       // value whose uses follow
  bool in_uses_ = false;
};

}  // namespace

imported_lifetimes read_xla_dump(std::string const& path, std::optional<std::size_t> allocation) {
  return xla_reader{path}.read(allocation);
}

}  // namespace tidemark::tools
