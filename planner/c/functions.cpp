// SPDX-License-Identifier: Apache-2.0
// Implements tidemark_plan.h by `planner::find_plan`. Inputs are checked here or by the planner before use.
#include <tidemark_plan.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tidemark/planner.hpp>

namespace tidemark {
namespace {

using planner::plan_block;
using planner::plan_conflict;

static_assert(sizeof(std::size_t) == sizeof(std::uint64_t), "offsets have 64 bits on both sides");

/// Thrown if `on_progress` ends the search.
struct cancelled {};

[[noreturn]] void refuse(std::string const& what) { throw std::invalid_argument(what); }

/// Checks the size of a struct. Once a struct grows, its earlier sizes must be accepted, with 0 for missing
/// members.
template <class Struct>
Struct const& sized(Struct const& given, char const* name) {
  if (given.struct_size != sizeof(Struct)) {
    refuse(std::string{name} + ".struct_size is " + std::to_string(given.struct_size) +
           ", and this library knows " + std::to_string(sizeof(Struct)) +
           ": initialize it, or use a library as new as the header");
  }
  return given;
}

template <class T>
void require_array(T const* array, std::uint64_t count, char const* name) {
  if (array == nullptr && count != 0)
    refuse(std::string{name} + " is null, expected " + std::to_string(count) + " entries");
}

std::size_t alignment_of(tidemark_plan_blocks const& blocks, std::size_t i) {
  return blocks.alignment == nullptr ? 1 : blocks.alignment[i];
}

std::optional<std::size_t> fixed_offset_of(tidemark_plan_blocks const& blocks, std::size_t i) {
  if (blocks.fixed_offset == nullptr || blocks.fixed_offset[i] == TIDEMARK_PLAN_NOT_FIXED)
    return std::nullopt;
  return blocks.fixed_offset[i];
}

std::vector<lifetime> lifetimes_of(tidemark_plan_blocks const& blocks) {
  std::vector<lifetime> found;
  found.reserve(blocks.count);
  for (std::size_t i = 0; i < blocks.count; ++i) {
    // make_plan accepts equal moments for a block that is never live. From callers of C they are usually a
    // last moment.
    if (blocks.end[i] <= blocks.begin[i]) {
      refuse("block " + std::to_string(i) + " ends at " + std::to_string(blocks.end[i]) +
             ", which is not after its begin, " + std::to_string(blocks.begin[i]));
    }
    found.push_back({.lower = blocks.begin[i],
                     .upper = blocks.end[i],
                     .size = blocks.size[i],
                     .alignment = alignment_of(blocks, i),
                     .offset = fixed_offset_of(blocks, i)});
  }
  return found;
}

std::vector<plan_block> blocks_of(tidemark_plan_blocks const& blocks) {
  std::vector<plan_block> found;
  found.reserve(blocks.count);
  for (std::size_t i = 0; i < blocks.count; ++i) {
    found.push_back(
        {.size = blocks.size[i], .alignment = alignment_of(blocks, i), .offset = fixed_offset_of(blocks, i)});
  }
  return found;
}

std::vector<plan_conflict> conflicts_of(tidemark_plan_blocks const& blocks) {
  std::vector<plan_conflict> found;
  found.reserve(blocks.conflict_count);
  for (std::size_t i = 0; i < blocks.conflict_count; ++i)
    found.push_back({.first = blocks.conflicts[2 * i], .second = blocks.conflicts[2 * i + 1]});
  return found;
}

/// @return true if lifetimes define the conflicts, false if pairs do
bool check_arrays(tidemark_plan_blocks const& blocks) {
  constexpr std::uint64_t max_count = std::numeric_limits<std::uint32_t>::max() / 4;  // make_plan's
  if (blocks.count > max_count)
    refuse("count is " + std::to_string(blocks.count) + ", more blocks than it can count");
  if (blocks.conflict_count > std::numeric_limits<std::uint64_t>::max() / sizeof(plan_conflict))
    refuse("conflict_count is " + std::to_string(blocks.conflict_count) + ", more than memory can hold");
  require_array(blocks.size, blocks.count, "size");
  require_array(blocks.conflicts, blocks.conflict_count, "conflicts");
  const bool has_lifetimes = blocks.begin != nullptr || blocks.end != nullptr;
  if (blocks.conflicts == nullptr || has_lifetimes) {
    require_array(blocks.begin, blocks.count, "begin");
    require_array(blocks.end, blocks.count, "end");
  }
  if (has_lifetimes && blocks.conflicts != nullptr) refuse("begin and end cannot be combined with conflicts");
  return blocks.conflicts == nullptr;
}

planner::options options_of(tidemark_plan_options const& from) {
  planner::options options;
  options.alignment = from.alignment;
  // The clock's arithmetic does not overflow up to this limit of 100 years.
  constexpr auto max_limit_ns =
      static_cast<std::uint64_t>(std::chrono::nanoseconds{std::chrono::hours{24 * 365 * 100}}.count());
  options.time_limit = std::chrono::nanoseconds{std::min(from.time_limit_ns, max_limit_ns)};
  options.node_limit = from.node_limit;
  options.capacity = from.capacity;
  options.seed = from.seed;
  if (from.exact > 1) refuse("exact is " + std::to_string(from.exact) + ", neither 0 nor 1");
  options.exact = from.exact == 1;
  if (!std::has_single_bit(options.alignment))
    refuse("the alignment of the options, " + std::to_string(options.alignment) + ", is not a power of two");
  if (from.on_progress == nullptr) return options;
  options.on_progress = [from](planner::progress const& now) {
    const tidemark_plan_progress seen{sizeof(tidemark_plan_progress),
                                      now.height,
                                      now.lower_bound,
                                      now.nodes,
                                      static_cast<std::uint64_t>(now.elapsed.count()),
                                      now.proven_bound};
    if (from.on_progress(from.context, &seen) != 0) throw cancelled{};
  };
  return options;
}

tidemark_plan_result result_of(planner::result const& made, std::chrono::nanoseconds elapsed) {
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  result.height = made.height;
  result.lower_bound = made.lower_bound;
  result.proven_bound = made.proven_bound;
  for (planner::stage const& stage : made.stages) result.nodes += stage.nodes;
  result.elapsed_ns = static_cast<std::uint64_t>(elapsed.count());
  result.proof = TIDEMARK_PLAN_OPEN;
  if (made.optimal)
    result.proof = made.height == made.lower_bound ? TIDEMARK_PLAN_AT_BOUND : TIDEMARK_PLAN_PROVEN;
  return result;
}

void make(tidemark_plan_blocks const* blocks, tidemark_plan_options const* options, std::uint64_t* offsets,
          tidemark_plan_result* result) {
  if (blocks == nullptr) refuse("blocks is null");
  tidemark_plan_blocks const& known = sized(*blocks, "blocks");
  const bool has_lifetimes = check_arrays(known);
  require_array(offsets, known.count, "offsets");
  const tidemark_plan_options usual = TIDEMARK_PLAN_OPTIONS_INIT;
  const planner::options search = options_of(options == nullptr ? usual : sized(*options, "options"));
  if (result != nullptr) sized(*result, "result");

  const auto begin = std::chrono::steady_clock::now();
  const planner::result made = has_lifetimes
                                   ? planner::find_plan(lifetimes_of(known), search)
                                   : planner::find_plan(blocks_of(known), conflicts_of(known), search);
  const auto elapsed = std::chrono::steady_clock::now() - begin;

  std::ranges::copy(made.offsets, offsets);
  if (result != nullptr) *result = result_of(made, elapsed);
}

/// Never throws. Truncates the text to the buffer.
void write_message(std::string_view text, char* message, std::size_t message_bytes) noexcept {
  if (message == nullptr || message_bytes == 0) return;
  const std::size_t length = std::min(text.size(), message_bytes - 1);
  std::memcpy(message, text.data(), length);
  message[length] = '\0';
}

/// Returns make_plan's message without its prefix.
std::string_view reason_of(std::exception const& error) noexcept {
  constexpr std::string_view function = "make_plan: ";
  std::string_view text = error.what();
  if (text.starts_with(function)) text.remove_prefix(function.size());
  return text;
}

}  // namespace
}  // namespace tidemark

extern "C" {

int32_t tidemark_plan_make(tidemark_plan_blocks const* blocks, tidemark_plan_options const* options,
                           uint64_t* offsets, tidemark_plan_result* result, char* message,
                           size_t message_bytes) {
  const auto end = [&](std::int32_t status, std::string_view text) noexcept {
    tidemark::write_message(text, message, message_bytes);
    return status;
  };
  try {
    tidemark::make(blocks, options, offsets, result);
    return end(TIDEMARK_PLAN_OK, "");
  } catch (tidemark::cancelled const&) {
    return end(TIDEMARK_PLAN_CANCELLED, "on_progress ended the search");
  } catch (std::invalid_argument const& error) {
    return end(TIDEMARK_PLAN_INVALID, tidemark::reason_of(error));
  } catch (std::bad_alloc const&) {
    return end(TIDEMARK_PLAN_NO_MEMORY, "there is too little memory for the search");
  } catch (std::length_error const&) {  // a vector would exceed its maximum size
    return end(TIDEMARK_PLAN_NO_MEMORY, "there is too little memory for the search");
  } catch (std::exception const& error) {
    return end(TIDEMARK_PLAN_FAILED, tidemark::reason_of(error));
  } catch (...) {
    return end(TIDEMARK_PLAN_FAILED, "the search threw an exception of unknown type");
  }
}

uint32_t tidemark_plan_abi_version(void) { return TIDEMARK_PLAN_ABI_VERSION; }

char const* tidemark_plan_version(void) { return TIDEMARK_PLAN_VERSION; }

}  // extern "C"
