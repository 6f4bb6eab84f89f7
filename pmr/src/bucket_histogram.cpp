// SPDX-License-Identifier: Apache-2.0
#include <tidemark/bucket_histogram.hpp>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include <tidemark/detail/align.hpp>
#include <tidemark/detail/size_classes.hpp>

namespace tidemark {
namespace {

using detail::size_classes;

// The least waste with a number of classes, for the sizes up to each.
class least_waste {
 public:
  // Sizes rise; `counts[i]` requests of them with `bytes[i]` bytes in all.
  least_waste(std::vector<std::size_t> const& sizes, std::vector<std::uint64_t> const& counts,
              std::vector<std::uint64_t> const& bytes)
      : sizes_{sizes}, counts_before_(1, 0), bytes_before_(1, 0) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      counts_before_.push_back(counts_before_.back() + counts[i]);
      bytes_before_.push_back(bytes_before_.back() + bytes[i]);
    }
    best_.assign(sizes.size() + 1, std::numeric_limits<double>::infinity());
    best_[0] = 0;
  }

  // Allows one class more.
  void add_class() {
    next_.assign(best_.size(), std::numeric_limits<double>::infinity());
    next_[0] = 0;
    cut_.emplace_back(best_.size(), 0);
    solve(1, sizes_.size(), 0, sizes_.size() - 1);
    best_.swap(next_);
  }

  // The classes' sizes, with as many classes as were allowed.
  [[nodiscard]] std::vector<std::size_t> classes() const {
    std::vector<std::size_t> result;
    std::size_t end = sizes_.size();
    for (std::size_t row = cut_.size(); row-- > 0 && end > 0; end = cut_[row][end]) {
      result.push_back(sizes_[end - 1]);
    }
    std::ranges::reverse(result);
    return result;
  }

 private:
  // Of one class for sizes [first, end). A double, because products may exceed 64 bits.
  [[nodiscard]] double waste(std::size_t first, std::size_t end) const {
    return static_cast<double>(sizes_[end - 1]) *
               static_cast<double>(counts_before_[end] - counts_before_[first]) -
           static_cast<double>(bytes_before_[end] - bytes_before_[first]);
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

  std::vector<std::size_t> const& sizes_;
  std::vector<std::uint64_t> counts_before_, bytes_before_;  // sums over the sizes before each
  std::vector<double> best_, next_;                          // least waste of the sizes before each
  std::vector<std::vector<std::size_t>> cut_;  // where the last class begins, for each number of classes
};

}  // namespace

void bucket_histogram::record(std::size_t bytes, std::uint64_t count) {
  const std::scoped_lock lock{mutex_};
  counts_[bytes] += count;
}

std::uint64_t bucket_histogram::requests() const {
  const std::scoped_lock lock{mutex_};
  std::uint64_t sum = 0;
  for (auto const& [bytes, count] : counts_) sum += count;
  return sum;
}

std::vector<std::size_t> bucket_histogram::suggest_buckets(std::size_t count_max,
                                                           std::size_t largest_bytes) const {
  if (count_max == 0 || count_max > size_classes::count_max) {
    throw std::invalid_argument("bucket_histogram: " + std::to_string(count_max) +
                                " buckets were asked for; there can be 1 to 64");
  }
  std::vector<std::size_t> sizes;
  std::vector<std::uint64_t> counts, total_bytes;
  {
    const std::scoped_lock lock{mutex_};
    for (auto const& [bytes, count] : counts_) {
      if (bytes > std::min(largest_bytes, size_classes::block_bytes_max)) break;
      const std::size_t rounded = std::max<std::size_t>(size_classes::block_bytes_min,
                                                        detail::align_up(bytes, size_classes::granule_bytes));
      if (sizes.empty() || sizes.back() != rounded) {
        sizes.push_back(rounded);
        counts.push_back(0);
        total_bytes.push_back(0);
      }
      counts.back() += count;
      total_bytes.back() += count * bytes;
    }
  }
  if (sizes.size() <= count_max) return sizes;
  least_waste table{sizes, counts, total_bytes};
  for (std::size_t i = 0; i < count_max; ++i) table.add_class();
  return table.classes();
}

std::uint64_t bucket_histogram::wasted_bytes(std::span<std::size_t const> bucket_bytes) const {
  const std::scoped_lock lock{mutex_};
  std::uint64_t wasted = 0;
  for (auto const& [bytes, count] : counts_) {
    const auto found = std::ranges::lower_bound(bucket_bytes, bytes);
    if (found != bucket_bytes.end()) wasted += (*found - bytes) * count;
  }
  return wasted;
}

}  // namespace tidemark
