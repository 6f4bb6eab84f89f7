// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan/replay/step_plan.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tidemark/core/detail/align.hpp>

#include "../plan_problem.hpp"

namespace tidemark {
namespace {

namespace planning = detail::planning;

// A violated rule of `step_plan`, and the index of its block; the number of blocks for the whole plan.
using plan_fault = std::pair<std::size_t, char const*>;

// Returns the end of a slot. A block without bytes also has an address.
std::size_t end_of(planned_block const& block) noexcept {
  return *block.life.offset + std::max<std::size_t>(block.life.size, 1);
}

std::vector<planning::event> events_of(step_plan const& plan) {
  return planning::events_of(plan.blocks.size(), [&](std::size_t i) {
    return planning::range{plan.blocks[i].life.lower, plan.blocks[i].life.upper};
  });
}

// Returns the rule that a block violates alone or with the previous block; null if it violates none.
// @param request the expected request
char const* broken_by(step_plan const& plan, std::size_t i, std::size_t request) {
  planned_block const& block = plan.blocks[i];
  lifetime const& life = block.life;
  planned_block const& before = plan.blocks[i > 0 ? i - 1 : 0];
  const bool is_further = i > 0 && block.request == before.request;
  if (block.request != request && !is_further) return "not numbered one after the other";
  if (is_further && !(plan.outlives(block) && plan.outlives(before)))
    return "more than one block for a request that ends within the step";
  // A block that fits in one place of its request gets any free place of the request.
  if (is_further && (life.size != before.life.size || life.alignment != before.life.alignment))
    return "its places differ in size or alignment";
  if (life.lower >= life.upper) return "not lower < upper";
  const bool is_within = life.lower == block.request && life.upper <= plan.requests;
  if (!is_within && !(life.lower == 0 && plan.outlives(block)))
    return "not live in [request, upper) with upper <= requests, or in [0, requests + 1)";
  if (!std::has_single_bit(life.alignment)) return "not aligned to a power of two";
  if (!life.offset.has_value()) return "not placed";
  if (*life.offset % std::max(plan.alignment, life.alignment) != 0)
    return "not at a multiple of the alignment";
  if (*life.offset > plan.height || std::max<std::size_t>(life.size, 1) > plan.height - *life.offset)
    return "not offset + size <= height";
  return nullptr;
}

// Returns the first fault; empty if the plan is valid. O(n log n).
std::optional<plan_fault> find_fault(step_plan const& plan) {
  const std::size_t whole = plan.blocks.size();
  if (!std::has_single_bit(plan.alignment)) return {{whole, "alignment is not a power of two"}};
  std::size_t request = 0;
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    if (char const* const broken = broken_by(plan, i, request)) return {{i, broken}};
    request = plan.blocks[i].request + 1;
  }
  if (request != plan.requests) return {{whole, "the plan's number of requests differs from its blocks"}};
  const auto bytes_of = [&](std::size_t i) {
    return planning::range{*plan.blocks[i].life.offset, end_of(plan.blocks[i])};
  };
  if (const auto found = planning::find_overlap(events_of(plan), bytes_of))
    return {{found->first, "overlaps a block that is live at the same time"}};
  if (plan.lower_bound > plan.height) return {{whole, "not lower_bound <= height"}};
  return std::nullopt;
}

constexpr std::string_view plan_columns = "id,lower,upper,size,alignment,offset";

[[noreturn]] void fail(std::string const& path, std::size_t line, std::string const& reason) {
  throw std::runtime_error{path + ":" + std::to_string(line) + ": " + reason +
                           "; only files of save_plan load, also after tidemark-plan --replan"};
}

// @throws std::runtime_error if a number of a row is above its limit, or its id is out of order
void require_limits(std::string const& path, std::size_t line, planned_block const& block,
                    std::size_t next_request) {
  constexpr std::uint64_t max_number = std::uint64_t{1} << 62;
  lifetime const& life = block.life;
  const std::pair<char const*, std::uint64_t> numbers[] = {
      {"upper", life.upper}, {"size", life.size}, {"alignment", life.alignment}, {"offset", *life.offset}};
  for (auto const& [column, number] : numbers) {
    if (number > max_number)
      fail(path, line, std::string{column} + " is " + std::to_string(number) + ", above 2^62");
  }
  if (block.request > next_request || block.request + 1 < next_request) {
    fail(path, line,
         "id is " + std::to_string(block.request) + "; ids are requests, and the next request is " +
             std::to_string(next_request));
  }
}

[[noreturn]] void fail_by_system(std::string const& path, int error = errno) {
  throw std::runtime_error{path + ": " + std::generic_category().message(error != 0 ? error : EIO)};
}

planned_block parse_row(std::string const& path, std::size_t line, std::string_view text) {
  std::uint64_t fields[6] = {};
  char const* at = text.data();
  char const* const end = at + text.size();
  for (std::uint64_t& field : fields) {
    const auto [stop, error] = std::from_chars(at, end, field);
    if (error != std::errc{} || (&field == &fields[5] ? stop != end : stop == end || *stop != ','))
      fail(path, line, "the row is not six whole numbers below 2^64");
    at = stop + 1;
  }
  return {fields[0], {fields[1], fields[2], fields[3], fields[4], fields[5]}};  // in the order of the columns
}

// Computes the numbers that the rows imply.
void complete(step_plan& plan) {
  if (plan.blocks.empty()) return;
  plan.requests = plan.blocks.back().request + 1;
  plan.alignment = plan.blocks.front().life.alignment;
  for (planned_block const& block : plan.blocks)
    plan.alignment = std::min(plan.alignment, block.life.alignment);
  std::size_t live_bytes = 0;  // wraps if a lifetime ends before it begins, which is another fault
  for (planning::event const& e : events_of(plan)) {
    planned_block const& block = plan.blocks[e.number];
    const std::size_t end = detail::align_up(end_of(block), plan.alignment);
    const std::size_t bytes = end - *block.life.offset;
    live_bytes += e.birth ? bytes : -bytes;
    plan.height = std::max(plan.height, end);
    plan.lower_bound = std::max(plan.lower_bound, live_bytes);
  }
  // Higher only if blocks overlap, which is another fault.
  plan.lower_bound = std::min(plan.lower_bound, plan.height);
}

}  // namespace

void step_plan::require_valid() const {
  const std::optional<plan_fault> fault = find_fault(*this);
  if (!fault) return;
  const std::string where =
      fault->first < blocks.size() ? "request " + std::to_string(blocks[fault->first].request) + ": " : "";
  throw std::invalid_argument{"step_plan: " + where + fault->second};
}

void save_plan(step_plan const& plan, std::string const& path) {
  plan.require_valid();
  const std::string unfinished = path + ".unfinished";
  errno = 0;
  std::ofstream file{unfinished, std::ios::binary};
  if (!file) fail_by_system(path);
  file << plan_columns << '\n';
  for (planned_block const& block : plan.blocks) {
    lifetime const& life = block.life;
    file << block.request << ',' << life.lower << ',' << life.upper << ',' << life.size << ','
         << std::max(life.alignment, plan.alignment) << ',' << *life.offset << '\n';
  }
  file.close();
  if (file && std::rename(unfinished.c_str(), path.c_str()) == 0) return;
  const int why = errno;
  std::remove(unfinished.c_str());
  fail_by_system(path, why);
}

step_plan load_step_plan(std::string const& path) {
  errno = 0;
  std::ifstream file{path, std::ios::binary};
  if (!file) fail_by_system(path);
  step_plan loaded;
  std::string text;
  if (!std::getline(file, text)) {
    if (file.bad()) fail_by_system(path);
    fail(path, 1, "the file is empty; it should begin with " + std::string{plan_columns});
  }
  if (text != plan_columns) fail(path, 1, "the header is not " + std::string{plan_columns});
  for (std::size_t line = 2; std::getline(file, text); ++line) {
    const planned_block block = parse_row(path, line, text);
    require_limits(path, line, block, loaded.blocks.empty() ? 0 : loaded.blocks.back().request + 1);
    if (!std::has_single_bit(block.life.alignment)) fail(path, line, "the alignment is not a power of two");
    loaded.blocks.push_back(block);
  }
  if (file.bad()) fail_by_system(path);
  complete(loaded);
  if (const auto fault = find_fault(loaded)) {
    // The plan as a whole has no fault, because `complete` computes its numbers from the rows.
    const std::size_t row = std::min(fault->first, loaded.blocks.size() - 1);
    fail(path, row + 2, "request " + std::to_string(loaded.blocks[row].request) + ": " + fault->second);
  }
  return loaded;
}

}  // namespace tidemark
