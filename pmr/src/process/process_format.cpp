// SPDX-License-Identifier: Apache-2.0
#include <tidemark/process/detail/process_format.hpp>

#include <bit>
#include <cstddef>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory_resource>
#include <unordered_map>
#include <vector>

namespace tidemark::detail {
namespace {

template <class... Types>
std::uint64_t hash_of_types(std::uint64_t hash) noexcept {
  ((hash = fnv_more(hash, type_layout<Types>())), ...);
  return hash;
}

}  // namespace

std::uint64_t library_layout(std::uint64_t layout_version) noexcept {
  std::uint64_t hash = fnv_more(fnv_basis, layout_version);
  hash = fnv_more(hash, std::endian::native == std::endian::little);
  hash = fnv_more(hash, std::numeric_limits<char>::is_signed);
  hash = hash_of_types<void*, int, long, long double, wchar_t, std::max_align_t>(hash);
  return hash_of_types<std::pmr::string, std::pmr::vector<int>, std::pmr::vector<bool>, std::pmr::deque<int>,
                       std::pmr::list<int>, std::pmr::map<int, int>, std::pmr::unordered_map<int, int>>(hash);
}

}  // namespace tidemark::detail
