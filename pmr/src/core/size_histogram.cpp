// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/size_histogram.hpp>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/size_classes.hpp>

namespace tidemark {
namespace {

using detail::size_classes;

// A request may be aligned to 16, as it is by default.
constexpr std::size_t min_class_bytes = 16;

// Of the requests up to a size.
struct sums {
  std::size_t size = 0;
  std::uint64_t requests = 0, bytes = 0;
};

// The least waste with a number of classes, for the sizes up to each.
class least_waste {
 public:
  // Sizes rise, from 0 for no request; `up_to` must outlive this.
  explicit least_waste(std::vector<sums> const& up_to)
      : up_to_{up_to}, best_(up_to.size(), std::numeric_limits<double>::infinity()) {
    best_[0] = 0;
  }

  // Allows one class more.
  void add_class() {
    next_.assign(best_.size(), std::numeric_limits<double>::infinity());
    next_[0] = 0;
    cut_.emplace_back(best_.size(), 0);
    solve(1, best_.size() - 1, 0, best_.size() - 2);
    best_.swap(next_);
  }

  // The classes' sizes, with as many classes as were allowed.
  [[nodiscard]] std::vector<std::size_t> classes() const {
    std::vector<std::size_t> result;
    std::size_t end = best_.size() - 1;
    for (std::size_t row = cut_.size(); row-- > 0 && end > 0; end = cut_[row][end]) {
      result.push_back(up_to_[end].size);
    }
    std::ranges::reverse(result);
    return result;
  }

 private:
  // Of one class for the sizes above `first` up to `end`. A double, because products may exceed 64 bits.
  [[nodiscard]] double waste(std::size_t first, std::size_t end) const {
    sums const &below = up_to_[first], &all = up_to_[end];
    return static_cast<double>(all.size) * static_cast<double>(all.requests - below.requests) -
           static_cast<double>(all.bytes - below.bytes);
  }

  // For all ends in [low, high], whose last class begins in [from, to].
  void solve(std::size_t low, std::size_t high, std::size_t from, std::size_t to) {
    if (low > high) return;
    const std::size_t end = low + (high - low) / 2;
    std::size_t chosen = from;
    for (std::size_t first = from; first <= std::min(to, end - 1); ++first) {
      const double candidate = best_[first] + waste(first, end);
      if (candidate < next_[end]) next_[end] = candidate, chosen = first;
    }
    cut_.back()[end] = chosen;
    solve(low, end - 1, from, chosen);
    solve(end + 1, high, chosen, to);
  }

  std::vector<sums> const& up_to_;
  std::vector<double> best_, next_;            // least waste of the sizes up to each
  std::vector<std::vector<std::size_t>> cut_;  // where the last class begins, for each number of classes
};

}  // namespace

void size_histogram::record(std::size_t bytes, std::uint64_t count) {
  const std::scoped_lock lock{mutex_};
  counts_[bytes] += count;
}

std::uint64_t size_histogram::requests() const {
  const std::scoped_lock lock{mutex_};
  std::uint64_t sum = 0;
  for (auto const& [bytes, count] : counts_) sum += count;
  return sum;
}

std::vector<std::size_t> size_histogram::suggest_size_classes(std::size_t max_count,
                                                              std::size_t largest_bytes) const {
  if (max_count == 0 || max_count > size_classes::max_count) {
    throw std::invalid_argument("size_histogram: " + std::to_string(max_count) +
                                " size classes were requested; there can be 1 to 96");
  }
  std::vector<sums> up_to(1);
  {
    const std::scoped_lock lock{mutex_};
    for (auto const& [bytes, count] : counts_) {
      if (bytes > std::min(largest_bytes, size_classes::max_block_bytes)) break;
      const std::size_t rounded = std::max(min_class_bytes, detail::align_up(bytes, min_class_bytes));
      if (up_to.back().size != rounded) up_to.push_back(up_to.back());
      up_to.back() = {rounded, up_to.back().requests + count, up_to.back().bytes + count * bytes};
    }
  }
  least_waste table{up_to};
  for (std::size_t i = 0; i < std::min(max_count, up_to.size() - 1); ++i) table.add_class();
  return table.classes();
}

std::uint64_t size_histogram::wasted_bytes(std::span<std::size_t const> size_classes) const {
  const std::scoped_lock lock{mutex_};
  std::uint64_t wasted = 0;
  for (auto const& [bytes, count] : counts_) {
    const auto found = std::ranges::lower_bound(size_classes, bytes);
    if (found != size_classes.end()) wasted += (*found - bytes) * count;
  }
  return wasted;
}

}  // namespace tidemark
