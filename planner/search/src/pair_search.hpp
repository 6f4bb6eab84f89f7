// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "By pairs" and "Proofs".
// A search for a layout of a given height by pairs of buffers. Finds a layout, or proves that none exists.
// Its steps form a proof that other programs can check.
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

/// A relation on the numbers below `n`, with a bit for each pair.
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

/// Searches for layouts of a given height by deciding which of two conflicting buffers is the lower one.
///
/// A case has decided some pairs. Rules derive consequences until two contradict each other or nothing
/// changes. Then the case is split at the pair with the least room. If no pair is left, the heads are a
/// layout.
///
/// For few buffers with lifetimes; buffers may be fixed and aligned. A case takes n^2 bits. The rules take
/// O(k^2) steps for each changed section of k buffers and each change.
class pair_search {
 public:
  /// A step of a proof. If `first != second`, the case with `first` below `second` follows, then the opposite
  /// case. If both are equal, the case contradicts itself.
  struct step {
    std::uint32_t first = 0;
    std::uint32_t second = 0;

    [[nodiscard]] bool is_contradiction() const noexcept { return first == second; }
  };

  explicit pair_search(solver_context& context);

  [[nodiscard]] static bool is_for(problem const& instance) {
    return !instance.graph && instance.buffers.size() <= max_buffers;
  }

  /// Visits at most `max_cases` cases, each a node of the context. Returns `unknown` if a limit of the
  /// context ends the search.
  /// @param proof null, or receives the steps of the search, which prove the answer `impossible`. The search
  ///   ends with `unknown` after 2^21 steps
  /// @pre `is_for` the problem
  outcome probe(offset_type height, std::uint64_t max_cases, std::vector<step>* proof = nullptr);

  /// The offsets of the layout that was found.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  static constexpr std::size_t max_buffers = 256;
  // Each takes up to 12 KiB.
  static constexpr std::size_t max_open_cases = 1024;
  static constexpr std::size_t max_proof_steps = std::size_t{1} << 21U;

  using section = order;
  /// Pairs of a key and a buffer number, largest key first.
  using ranking = std::vector<std::pair<offset_type, std::uint32_t>>;

  /// The facts that are known in a case.
  ///
  /// Invariants: `head + size + tail <= height` for each buffer; its alignment divides `head` and `height -
  /// tail - size`.
  struct known_case {
    std::vector<offset_type> heads;  // lower bounds of the offsets
    std::vector<offset_type> tails;  // lower bounds of the bytes above the ends
    relation below;                  // the first buffer of a pair is the lower one
  };
  struct open_case {
    known_case known;
    std::optional<step> added;  // the last pair, whose consequences are unknown; null in the first case
  };
  /// The least bytes of a pile of buffers. Counts only buffers aligned to `align` or more.
  class pile {
   public:
    explicit pile(offset_type align) : align_{align} {}
    void add(buffer const& one);
    [[nodiscard]] bool empty() const { return to_next_ == 0; }
    /// Bytes up to the next multiple of the alignment (`to_next`) and up to the end of the highest buffer
    /// (`to_end`).
    [[nodiscard]] offset_type to_next() const { return to_next_; }
    [[nodiscard]] offset_type to_end() const { return to_next_ - largest_slack_; }

   private:
    offset_type align_;
    offset_type to_next_ = 0;
    offset_type largest_slack_ = 0;
  };

  [[nodiscard]] buffer const& at(std::uint32_t i) const { return instance_->buffers[i]; }
  [[nodiscard]] std::optional<known_case> first_case() const;
  void mark_changed(section_range sections);
  void mark_changed_by(std::optional<step> added);
  [[nodiscard]] bool follow(known_case& now);
  [[nodiscard]] bool follow_in(known_case& now, section const& live);
  [[nodiscard]] bool exceeds(known_case const& now, ranking const& by_head, ranking const& by_tail) const;
  [[nodiscard]] bool raise_head(known_case& now, std::uint32_t i, ranking const& by_head) const;
  [[nodiscard]] bool raise_tail(known_case& now, std::uint32_t i, ranking const& by_tail) const;
  [[nodiscard]] offset_type height_with(known_case const& now, std::uint32_t lower,
                                        std::uint32_t upper) const;
  [[nodiscard]] bool order_pairs(known_case& now, section const& live);
  [[nodiscard]] bool follow_chains(known_case& now, section const& live);
  [[nodiscard]] bool order_below(known_case& now, std::uint32_t lower, std::uint32_t upper);
  [[nodiscard]] std::optional<step> tightest(known_case const& now) const;

  solver_context* context_;
  problem const* instance_;
  std::vector<section> sections_;
  std::vector<offset_type> alignments_;  // distinct, including 1
  relation conflicts_;
  relation below_alike_;       // identical buffers are ordered by number
  std::vector<bool> changed_;  // by section, since its last turn
  offset_type height_ = 0;
  std::vector<offset_type> offsets_;
};

}  // namespace tidemark::planner::detail
