// SPDX-License-Identifier: Apache-2.0
// A server's cache of answers with least-recently-used eviction. Blocks live long and die in no order.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <memory_resource>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>

#include "program.hpp"

namespace tidemark::bench {
namespace {

/// Evicts the least recently used answers, by bytes.
class answers {
 public:
  answers(std::size_t bytes_max, std::pmr::memory_resource* memory)
      : bytes_max_{bytes_max}, newest_first_{memory}, by_key_{memory} {}

  /// Returns null if the key is missing.
  std::pmr::string const* find(std::uint64_t key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    newest_first_.splice(newest_first_.begin(), newest_first_, found->second);
    return &found->second->text;
  }
  void insert(std::uint64_t key, std::string_view text) {
    newest_first_.emplace_front(key, std::pmr::string{text, newest_first_.get_allocator()});
    by_key_.emplace(key, newest_first_.begin());
    for (bytes_ += text.size(); bytes_ > bytes_max_;) {
      bytes_ -= newest_first_.back().text.size();
      by_key_.erase(newest_first_.back().key);
      newest_first_.pop_back();
    }
  }

 private:
  struct answer {
    answer(std::uint64_t of, std::pmr::string is) : key{of}, text{std::move(is)} {}
    std::uint64_t key;
    std::pmr::string text;
  };

  std::size_t bytes_max_, bytes_ = 0;
  std::pmr::list<answer> newest_first_;
  std::pmr::unordered_map<std::uint64_t, std::pmr::list<answer>::iterator> by_key_;
};

class server final : public worker {
 public:
  server(step_memory& memory, extent size)
      : calls_{size == extent::full ? 60'000U : 500U},
        kept_{size == extent::full ? 8U << 20 : 64U << 10, memory.resource()} {}

  std::uint64_t step(unsigned) override {
    std::uint64_t sum = 0;
    for (unsigned call = 0; call < calls_; ++call) {
      // Few keys are frequent and most are rare: a truncated Pareto distribution.
      const auto key = static_cast<std::uint64_t>(std::pow(1 - unit_(random_), -2.5)) % 1'000'003;
      std::pmr::string const* found = kept_.find(key);
      if (found == nullptr) kept_.insert(key, std::string_view{text_}.substr(0, 40 + mixed(1, key) % 2000));
      sum = mixed(sum, found == nullptr ? key : found->size());
    }
    return sum;
  }

 private:
  unsigned calls_;
  std::mt19937_64 random_{17};
  std::uniform_real_distribution<double> unit_{0, 1};
  std::string text_ = std::string(2100, 'a');
  answers kept_;
};

}  // namespace

std::unique_ptr<worker> start_cache(step_memory& memory, unsigned, extent size) {
  return std::make_unique<server>(memory, size);
}

}  // namespace tidemark::bench
