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

// The default alignment of requests is 16.
constexpr std::size_t min_class_bytes = 16;

// Sums over the requests up to a size.
struct sums {
  std::size_t size = 0;
  std::uint64_t requests = 0, bytes = 0;
};

// Waste of one class for sizes above `below` up to `all`. A double, because products may exceed 64 bits.
double waste(sums const& below, sums const& all) {
  return static_cast<double>(all.size) * static_cast<double>(all.requests - below.requests) -
         static_cast<double>(all.bytes - below.bytes);
}

// Sizes of `count` classes with the least waste. The sizes in `up_to` rise, beginning with 0 for no request.
// With more sizes the last class begins at the same size or a larger one, because the costs are Monge: a
// class over more sizes never gains from a larger one (Galil and Park, 1992).
std::vector<std::size_t> classes_of_least_waste(std::vector<sums> const& up_to, std::size_t count) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<double> best(up_to.size(), infinite);  // least waste of the sizes up to each
  best[0] = 0;
  // Begin of the last class, for each number of classes.
  std::vector<std::vector<std::size_t>> cut(count, std::vector<std::size_t>(up_to.size()));
  for (std::vector<std::size_t>& begin : cut) {
    std::vector<double> next(up_to.size(), infinite);
    next[0] = 0;
    for (std::size_t end = 1; end < up_to.size(); ++end) {
      for (std::size_t first = begin[end - 1]; first < end; ++first) {
        const double candidate = best[first] + waste(up_to[first], up_to[end]);
        if (candidate < next[end]) next[end] = candidate, begin[end] = first;
      }
    }
    best.swap(next);
  }
  std::vector<std::size_t> result;
  std::size_t end = up_to.size() - 1;
  for (std::size_t row = count; row-- > 0 && end > 0; end = cut[row][end]) result.push_back(up_to[end].size);
  std::ranges::reverse(result);
  return result;
}

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
                                " size classes were requested; the range is 1 to 96");
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
  return classes_of_least_waste(up_to, std::min(max_count, up_to.size() - 1));
}

}  // namespace tidemark
