// SPDX-License-Identifier: Apache-2.0
// docs/planner.md, "Proofs", has the rules and why they hold.
#include "proof.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::tools {
namespace {

/// What is known in a case: how low each block may begin, how many bytes lie above its end at least, and of
/// which pairs the lower one is known.
struct known_case {
  std::vector<std::uint64_t> heads, tails;  ///< bytes, by block
  std::vector<bool> is_below;               ///< by lower and upper block

  [[nodiscard]] bool below(std::size_t lower, std::size_t upper) const {
    return is_below[lower * heads.size() + upper];
  }
  void put_below(std::size_t lower, std::size_t upper) { is_below[lower * heads.size() + upper] = true; }
  [[nodiscard]] bool is_open(std::size_t a, std::size_t b) const { return !below(a, b) && !below(b, a); }
};

using section = std::vector<std::size_t>;  // blocks that are live at one moment

/// Members of a section by their heads or tails, the largest first. It keeps those of the time it was made.
class ranking {
 public:
  ranking(section const& live, std::vector<std::uint64_t> const& keys) {
    for (std::size_t i : live) ranked_.emplace_back(keys[i], i);
    std::ranges::sort(ranked_, std::greater{});
  }

  /// The largest sum of a least key of some members and the sizes of all that have at least that key.
  /// @param size_of bytes of a member; 0: it does not count
  template <class SizeOf>
  [[nodiscard]] std::uint64_t largest_stack(SizeOf size_of) const {
    std::uint64_t largest = 0, sizes = 0;
    for (auto const& [key, member] : ranked_) {
      if (size_of(member) == 0) continue;
      sizes += size_of(member);
      largest = std::max(largest, key + sizes);
    }
    return largest;
  }

 private:
  std::vector<std::pair<std::uint64_t, std::size_t>> ranked_;
};

class prover {
 public:
  prover(std::span<lifetime const> blocks, plan_options const& options)
      : blocks_{blocks}, options_{&options} {
    for (lifetime const& block : blocks) {
      sizes_.push_back(detail::align_up(block.size, options.alignment));
      aligns_.push_back(std::max(options.alignment, block.alignment));
    }
    find_sections();
  }

  plan_proof run(memory_plan& made) {
    while (!refute_lower_than(made.height)) {
      if (lower_.empty()) return {"", cases_};
      made.height = 0;
      for (std::size_t i = 0; i < blocks_.size(); ++i) {
        made.height = std::max<std::size_t>(made.height, lower_[i] + sizes_[i]);
      }
      made.offsets.assign(lower_.begin(), lower_.end());
    }
    made.optimal = true;
    return {std::move(log_), cases_};
  }

 private:
  using clock = std::chrono::steady_clock;
  // A log takes about ten bytes for each case, and an open case some KiB.
  static constexpr std::size_t max_log_bytes = std::size_t{32} << 20U;
  static constexpr std::size_t max_open_cases = 4096;

  [[nodiscard]] std::uint64_t size(std::size_t block) const { return sizes_[block]; }

  /// The sets of blocks that are live at a birth, but for those within the one before.
  void find_sections() {
    section by_birth;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].size != 0 && blocks_[i].lower != blocks_[i].upper) by_birth.push_back(i);
    }
    std::ranges::sort(by_birth, {}, [&](std::size_t i) { return std::pair{blocks_[i].lower, i}; });
    section live;
    bool has_birth = false;  // since the last section
    for (std::size_t i : by_birth) {
      const auto is_dead = [&](std::size_t other) { return blocks_[other].upper <= blocks_[i].lower; };
      if (has_birth && std::ranges::any_of(live, is_dead)) {
        sections_.push_back(live);
        has_birth = false;
      }
      std::erase_if(live, is_dead);
      live.push_back(i);
      has_birth = true;
    }
    if (has_birth) sections_.push_back(std::move(live));
  }

  /// Whether a section or a block by itself has more than the height.
  [[nodiscard]] bool exceeds_at_once() const {
    const auto ends_above = [&](lifetime const& block) {
      return block.offset.value_or(0) + detail::align_up(block.size, options_->alignment) > height_;
    };
    const auto exceeds = [&](section const& live) {
      std::uint64_t sum = 0;
      for (std::size_t i : live) sum += size(i);
      return sum > height_;
    };
    return std::ranges::any_of(blocks_, ends_above) || std::ranges::any_of(sections_, exceeds);
  }

  /// @pre no block ends above the height
  [[nodiscard]] known_case first_case() const {
    known_case first{std::vector<std::uint64_t>(blocks_.size()), std::vector<std::uint64_t>(blocks_.size()),
                     std::vector<bool>(blocks_.size() * blocks_.size())};
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (!blocks_[i].offset) continue;
      first.heads[i] = *blocks_[i].offset;
      first.tails[i] = height_ - first.heads[i] - size(i);
    }
    return first;
  }

  /// Follows what is known to its end, or until a limit is reached. @return false if it contradicts itself
  [[nodiscard]] bool follow(known_case& now) const {
    for (bool changes = true; changes && !is_over();) {
      changes = false;
      for (section const& live : sections_) {
        const ranking by_head{live, now.heads}, by_tail{live, now.tails};
        if (exceeds(now, live, by_tail)) return false;
        for (std::size_t i : live) {
          changes |= raise_head(now, i, by_head);
          changes |= raise_tail(now, i, by_tail);
          if (now.heads[i] + size(i) + now.tails[i] > height_) return false;
        }
        if (!order_pairs(now, live, changes) || !follow_chains(now, live, changes)) return false;
      }
    }
    return true;
  }

  /// Whether some blocks of a section do not fit between the least head and the least tail among them.
  [[nodiscard]] bool exceeds(known_case const& now, section const& live, ranking const& by_tail) const {
    return std::ranges::any_of(live, [&](std::size_t lowest) {
      const std::uint64_t head = now.heads[lowest];
      const auto size_from = [&](std::size_t i) { return now.heads[i] >= head ? size(i) : 0; };
      return head + by_tail.largest_stack(size_from) > height_;
    });
  }

  bool raise_head(known_case& now, std::size_t block, ranking const& by_head) const {
    const auto size_below = [&](std::size_t i) { return now.below(i, block) ? size(i) : 0; };
    const std::uint64_t least = detail::align_up(by_head.largest_stack(size_below), aligns_[block]);
    if (least <= now.heads[block]) return false;
    now.heads[block] = least;
    return true;
  }

  bool raise_tail(known_case& now, std::size_t block, ranking const& by_tail) const {
    const auto size_above = [&](std::size_t i) { return now.below(block, i) ? size(i) : 0; };
    const std::uint64_t above = size(block) + by_tail.largest_stack(size_above);
    // More than there is above the block, where it has no offset left: a contradiction.
    const std::uint64_t least =
        above > height_ ? height_
                        : height_ - size(block) - detail::align_down(height_ - above, aligns_[block]);
    if (least <= now.tails[block]) return false;
    now.tails[block] = least;
    return true;
  }

  /// How high a plan is in which one block lies below the other.
  [[nodiscard]] std::uint64_t height_with(known_case const& now, std::size_t lower, std::size_t upper) const {
    return now.heads[lower] + size(lower) + size(upper) + now.tails[upper];
  }

  /// Orders the pairs of which one order is too high. @return false if both are
  [[nodiscard]] bool order_pairs(known_case& now, section const& live, bool& changes) const {
    for (std::size_t a : live) {
      for (std::size_t b : live) {
        if (a == b || now.below(b, a) || height_with(now, a, b) <= height_) continue;
        if (now.below(a, b)) return false;
        now.put_below(b, a);
        changes = true;
      }
    }
    return true;
  }

  /// What is below one that is below a third is below that. @return false if something is below itself: heads
  /// would rise around such a ring by a block at a time
  [[nodiscard]] bool follow_chains(known_case& now, section const& live, bool& changes) const {
    for (std::size_t middle : live) {
      for (std::size_t lower : live) {
        if (!now.below(lower, middle)) continue;
        for (std::size_t upper : live) {
          if (!now.below(middle, upper) || now.below(lower, upper)) continue;
          if (lower == upper || now.below(upper, lower)) return false;
          now.put_below(lower, upper);
          changes = true;
        }
      }
    }
    return true;
  }

  /// The pair of which both orders leave least.
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> tightest(known_case const& now) const {
    std::optional<std::pair<std::size_t, std::size_t>> found;
    std::pair<std::uint64_t, std::uint64_t> most{0, 0};
    for (section const& live : sections_) {
      for (auto a = live.begin(); a != live.end(); ++a) {
        for (auto b = std::next(a); b != live.end(); ++b) {
          if (!now.is_open(*a, *b)) continue;
          const auto both = std::minmax({height_with(now, *a, *b), height_with(now, *b, *a)});
          if (found && std::pair{both.first, both.second} <= most) continue;
          most = both;
          found.emplace(*a, *b);
        }
      }
    }
    return found;
  }

  [[nodiscard]] bool is_over() const {
    return cases_ >= options_->node_limit || log_.size() > max_log_bytes ||
           (options_->stop != nullptr && *options_->stop) || clock::now() - begin_ >= options_->time_limit;
  }

  /// Whether no plan is lower than so many bytes. If not, and no limit was reached, `lower_` is one.
  bool refute_lower_than(std::size_t height) {
    lower_.clear();
    log_ = "tidemark-plan proof 1\nalignment " + std::to_string(options_->alignment) + "\nlowest " +
           std::to_string(height) + '\n';
    height_ = height - 1;
    if (height == 0 || exceeds_at_once()) {
      ++cases_;
      log_ += "contradiction\n";
      return true;
    }
    if (blocks_.size() > max_blocks_of_cases) return false;
    std::vector<known_case> open{first_case()};
    while (!open.empty()) {
      if (is_over() || open.size() > max_open_cases) return false;
      known_case now = std::move(open.back());
      open.pop_back();
      const bool holds = follow(now);
      if (holds && is_over()) return false;  // it may not have been followed to its end
      ++cases_;
      if (!holds) {
        log_ += "contradiction\n";
        continue;
      }
      const auto pair = tightest(now);
      if (!pair) {
        lower_ = std::move(now.heads);
        return false;
      }
      const auto [a, b] = *pair;
      log_ += "cases " + std::to_string(a) + ' ' + std::to_string(b) + '\n';
      open.push_back(now);
      open.back().put_below(b, a);
      now.put_below(a, b);
      open.push_back(std::move(now));
    }
    return true;
  }

  std::span<lifetime const> blocks_;
  plan_options const* options_;
  clock::time_point begin_ = clock::now();
  std::vector<std::uint64_t> sizes_, aligns_;  // bytes, by block
  std::vector<section> sections_;
  std::uint64_t height_ = 0;  // bytes: no plan is to have at most so many
  std::string log_;
  std::uint64_t cases_ = 0;
  std::vector<std::uint64_t> lower_;  // offsets of a plan that has no more; empty: there is none known
};

}  // namespace

plan_proof prove_lowest(std::span<lifetime const> blocks, memory_plan& made, plan_options const& options) {
  return prover{blocks, options}.run(made);
}

}  // namespace tidemark::tools
