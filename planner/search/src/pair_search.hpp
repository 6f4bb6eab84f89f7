// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "By pairs" and "Proofs".
// A search for a layout of a given height that decides which of two buffers is the lower one, and proves that
// there is none where it finds none. Its steps are a proof that others can check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "search_buffers.hpp"
#include "solver_context.hpp"

namespace tidemark::planner::detail {

/// A relation between the numbers below `n`, with a bit for each pair.
class relation {
 public:
  using word = std::uint64_t;

  explicit relation(std::size_t n) : row_words_{(n + 63) / 64}, words_(n * row_words_) {}

  [[nodiscard]] bool has(std::size_t a, std::size_t b) const { return (row(a)[b / 64] >> b % 64 & 1U) != 0; }
  void add(std::size_t a, std::size_t b) { row(a)[b / 64] |= word{1} << b % 64; }
  [[nodiscard]] std::span<word> row(std::size_t a) {
    return std::span{words_}.subspan(a * row_words_, row_words_);
  }
  [[nodiscard]] std::span<word const> row(std::size_t a) const {
    return std::span{words_}.subspan(a * row_words_, row_words_);
  }

 private:
  std::size_t row_words_;
  std::vector<word> words_;
};

/// Looks for layouts of a given height by pairs: which of two buffers in conflict is the lower one.
///
/// A case has decided some pairs. Rules find its consequences, until two contradict each other or nothing
/// changes. Then the case is split in two, at the pair that has the least room. If no pair is left, each buffer as
/// low as it can be is a layout.
///
/// For lifetimes, whether fixed and aligned or not, of few buffers: a case takes n^2 bits, and the rules
/// O(k^2) steps for each section of k buffers in which something changed, each time that it did.
class pair_search {
 public:
  /// A step of a proof: the case in which `first` is below `second` follows, and after it the opposite one.
  /// Or, where both are the same, that the case contradicts itself.
  struct step {
    std::uint32_t first = 0;
    std::uint32_t second = 0;

    [[nodiscard]] bool is_contradiction() const noexcept { return first == second; }
  };

  explicit pair_search(solver_context& context);

  [[nodiscard]] static bool is_for(problem const& instance) {
    return !instance.graph && instance.buffers.size() <= max_buffers;
  }

  /// Looks at `max_cases` cases at most; they are the nodes of the context. The answer is `unknown` if a limit of
  /// the context ends it.
  /// @param proof null, or gets the steps of the search: if the answer is `impossible`, why it is. The search
  ///   ends with `unknown` when it has 2^21 steps
  /// @pre `is_for` the problem
  outcome probe(offset_type height, std::uint64_t max_cases, std::vector<step>* proof = nullptr);

  /// The offsets of the layout that was found.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  static constexpr std::size_t max_buffers = 256;
  // 12 KiB each, where there are most buffers.
  static constexpr std::size_t max_open_cases = 1024;
  static constexpr std::size_t max_proof_steps = std::size_t{1} << 21U;

  using section = order;
  /// A key of a buffer and its number: buffers by their keys, the largest first.
  using ranking = std::vector<std::pair<offset_type, std::uint32_t>>;

  /// The facts that are known in a case.
  ///
  /// head + size + tail <= height for each buffer, head is a multiple of its alignment, and so is
  /// height - tail - size.
  struct known_case {
    std::vector<offset_type> heads;  // offsets that buffers cannot be below
    std::vector<offset_type> tails;  // what lies above their ends at least
    relation below;                  // of two the first is the lower one
  };
  struct open_case {
    known_case known;
    std::optional<step> added;  // the last pair, from which nothing was followed yet; none: of the first case
  };
  /// The least bytes that buffers on each other take, of those at multiples of an alignment or more.
  class pile {
   public:
    explicit pile(offset_type align) : align_{align} {}
    void add(buffer const& one);
    [[nodiscard]] bool empty() const { return to_next_ == 0; }
    /// Up to the next offset of the alignment, and up to the end of the last one.
    [[nodiscard]] offset_type to_next() const { return to_next_; }
    [[nodiscard]] offset_type to_end() const { return to_next_ - largest_slack_; }

   private:
    offset_type align_;
    offset_type to_next_ = 0;
    offset_type largest_slack_ = 0;
  };

  [[nodiscard]] buffer const& at(std::uint32_t i) const { return instance_->buffers[i]; }
  [[nodiscard]] std::optional<known_case> first_case() const;
  void note_change(section_range sections);
  void note_changes_by(std::optional<step> added);
  [[nodiscard]] bool follow(known_case& now);
  [[nodiscard]] bool follow_in(known_case& now, section const& live);
  [[nodiscard]] bool exceeds(known_case const& now, ranking const& by_head, ranking const& by_tail) const;
  [[nodiscard]] bool raise_head(known_case& now, std::uint32_t i, ranking const& by_head) const;
  [[nodiscard]] bool raise_tail(known_case& now, std::uint32_t i, ranking const& by_tail) const;
  [[nodiscard]] offset_type height_with(known_case const& now, std::uint32_t lower,
                                        std::uint32_t upper) const;
  [[nodiscard]] bool order_pairs(known_case& now, section const& live);
  [[nodiscard]] bool follow_chains(known_case& now, section const& live);
  [[nodiscard]] bool put_below(known_case& now, std::uint32_t lower, std::uint32_t upper);
  [[nodiscard]] std::optional<step> tightest(known_case const& now) const;

  solver_context* context_;
  problem const* instance_;
  std::vector<section> sections_;
  std::vector<offset_type> alignments_;  // each once, and 1
  relation conflicts_;
  relation below_alike_;       // of buffers that are alike, the first is the lower one
  std::vector<bool> changed_;  // by section, since it was followed
  offset_type height_ = 0;
  std::vector<offset_type> offsets_;
};

}  // namespace tidemark::planner::detail
