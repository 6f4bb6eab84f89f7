// SPDX-License-Identifier: Apache-2.0
// Plans of steps as text: a row for each block.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <tidemark/detail/align.hpp>
#include <tidemark/step_plan.hpp>

namespace tidemark {
namespace {

constexpr std::string_view plan_columns = "id,lower,upper,size,alignment,offset";
constexpr std::size_t plan_column_count = 6;

[[noreturn]] void fail(std::string const& path, std::size_t line, std::string const& reason) {
  throw std::runtime_error{path + ":" + std::to_string(line) + ": " + reason};
}

[[noreturn]] void fail_by_system(std::string const& path) {
  throw std::runtime_error{path + ": " + std::generic_category().message(errno != 0 ? errno : EIO)};
}

planned_block parse_row(std::string const& path, std::size_t line, std::string_view text) {
  std::uint64_t fields[plan_column_count] = {};
  std::size_t n = 0;
  for (char const* at = text.data(); n < plan_column_count; ++n) {
    auto const* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(at, end, fields[n]);
    const bool is_last = n + 1 == plan_column_count;
    if (error != std::errc{} || (is_last ? stop != end : stop == end || *stop != ','))
      fail(path, line, "the row is not of six whole numbers, each below 2^64");
    at = stop + 1;
  }
  return {.request = fields[0],
          .life = {.lower = fields[1],
                   .upper = fields[2],
                   .size = fields[3],
                   .alignment = fields[4],
                   .offset = fields[5]}};
}

// What the rows do not say but imply.
void complete(step_plan& plan) {
  if (plan.blocks.empty()) return;
  plan.requests = plan.blocks.back().request + 1;
  plan.alignment = std::ranges::min_element(plan.blocks, {}, [](planned_block const& block) {
                     return block.life.alignment;
                   })->life.alignment;
  std::map<std::uint64_t, std::size_t> change;  // of bytes live, by moment; sums wrap and come back
  for (planned_block const& block : plan.blocks) {
    const std::size_t begin = *block.life.offset;
    const std::size_t end =
        detail::align_up(begin + std::max<std::size_t>(block.life.size, 1), plan.alignment);
    plan.height = std::max(plan.height, end);
    change[block.life.lower] += end - begin;
    change[block.life.upper] -= end - begin;
  }
  std::size_t live = 0;
  for (auto const& [when, bytes] : change) plan.lower_bound = std::max(plan.lower_bound, live += bytes);
  plan.lower_bound =
      std::min(plan.lower_bound, plan.height);  // above it only if blocks overlap, which is told of
}

}  // namespace

void save(step_plan const& plan, std::string const& path) {
  plan.require_valid();
  const std::string unfinished = path + ".unfinished";
  const auto give_up = [&] {
    const int why = errno;
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    errno = why;
    fail_by_system(path);
  };
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
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) give_up();
}

step_plan load_step_plan(std::string const& path) {
  errno = 0;
  std::ifstream file{path, std::ios::binary};
  if (!file) fail_by_system(path);
  step_plan loaded;
  std::string text;
  std::size_t line = 0;
  while (std::getline(file, text)) {
    ++line;
    if (line == 1) {
      if (text != plan_columns) fail(path, line, "the header is not " + std::string{plan_columns});
      continue;
    }
    loaded.blocks.push_back(parse_row(path, line, text));
    planned_block const& block = loaded.blocks.back();
    constexpr std::uint64_t number_max = std::uint64_t{1} << 62;
    if (block.life.size > number_max || *block.life.offset > number_max || block.life.upper > number_max ||
        block.request > line || block.life.alignment == 0 || block.life.alignment > number_max)
      fail(path, line, "a number is larger than any that a plan has, or the alignment is 0");
  }
  if (file.bad()) fail_by_system(path);
  if (line == 0) fail(path, 1, "the file is empty; it should begin with " + std::string{plan_columns});
  complete(loaded);
  try {
    loaded.require_valid();
  } catch (std::invalid_argument const& error) {
    throw std::runtime_error{path + ": " + error.what()};
  }
  return loaded;
}

}  // namespace tidemark
