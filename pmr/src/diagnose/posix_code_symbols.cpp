// SPDX-License-Identifier: Apache-2.0
// What the loader of Linux and macOS knows.
#if !defined(_WIN32)

#include "code_symbols.hpp"

#include <dlfcn.h>

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/until_unload.hpp>

#include "symbol_table.hpp"

#if __has_include(<sys/auxv.h>)
#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#endif

namespace tidemark::detail {
namespace {

struct module {
  module(std::uintptr_t in_memory, char const* file) :begin{in_memory}, path{file}, symbols{file} {}

  std::uintptr_t begin;  // in memory
  std::string path;
  symbol_table symbols;
};

// Scopes may be open while the program ends.
struct module_list {
  fork_safe<> mutex;
  std::vector<std::unique_ptr<module>> modules;

  static module_list& instance() {
    static auto& list = *new until_unload<module_list>;
    return list.value;
  }
  module const& find(std::uintptr_t begin, char const* path) {
    const std::scoped_lock lock{mutex};
    for (auto const& known : modules)
      if (known->begin == begin && known->path == path) return *known;
    modules.reserve(modules.size() + 1);
    modules.push_back(std::make_unique<module>(begin, path));
    return *modules.back();
  }
};

// Of the program the loader knows what it was called as, which is no path once the folder was changed.
std::string path_of(Dl_info const& found) {
#if __has_include(<sys/auxv.h>)
  Dl_info program{};
  char path[PATH_MAX];
  if (::dladdr(reinterpret_cast<void const*>(::getauxval(AT_PHDR)), &program) != 0 &&
      program.dli_fbase == found.dli_fbase) {
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
    if (length > 0) return {path, static_cast<std::size_t>(length)};
  }
#endif
  return found.dli_fname;
}

}  // namespace

// With dladdr and not dl_iterate_phdr, whose lock a child finds taken if another thread forked it inside.
code_place find_code(std::uintptr_t address) noexcept {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<void const*>(address), &found) == 0 || found.dli_fname == nullptr)
    return {.offset = address};
  try {
    const auto begin = reinterpret_cast<std::uintptr_t>(found.dli_fbase);
    module const& in = module_list::instance().find(begin, path_of(found).c_str());
    const std::uintptr_t offset = in.symbols.is_at_fixed_address() ? address : address - begin;
    char const* const function = in.symbols.function_at(offset);
    return {in.path.c_str(), offset, function != nullptr ? function : found.dli_sname};
  } catch (std::exception const&) {  // there is no memory for a record of the module
    return {.offset = address};
  }
}

}  // namespace tidemark::detail

#endif
