// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/ended_lives.hpp>

#include <new>

namespace tidemark::detail {

void ended_lives::add(tracked_block const& block, std::uint64_t life, ending how) noexcept {
  const std::scoped_lock lock{mutex_};
  try {
    const key of{&block, life};
    if (!endings_.emplace(of, how).second) return;
    order_.push_back(of);
    if (order_.size() <= count_max) return;
    endings_.erase(order_.front());
    order_.pop_front();
  } catch (std::bad_alloc const&) {
    endings_.clear();  // the two must agree
    order_.clear();
  }
}

std::optional<ending> ended_lives::find(tracked_block const& block, std::uint64_t life) const noexcept {
  const std::scoped_lock lock{mutex_};
  const auto found = endings_.find({&block, life});
  if (found == endings_.end()) return std::nullopt;
  return found->second;
}

}  // namespace tidemark::detail
