// SPDX-License-Identifier: Apache-2.0
// Uses the loader and the symbol tables of files.
#include "code_symbols.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>

// Declared here instead of by <cxxabi.h>, because a program's include path may lead to another C++ library's
// header.
// NOLINTNEXTLINE(bugprone-reserved-identifier, readability-identifier-naming): the ABI's name
extern "C" char* __cxa_demangle(char const* name, char* buffer, std::size_t* bytes, int* status);

#include <dlfcn.h>

#include <cstddef>
#include <cstring>
#include <exception>

#include <tidemark/core/file_descriptor.hpp>

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>

namespace tidemark::detail {
namespace {

// A mapped file. All offsets are compared with its size, because the file may have been replaced.
class mapped_file {
 public:
  explicit mapped_file(char const* path) noexcept {
    const file_descriptor file{::open(path, O_RDONLY | O_CLOEXEC)};
    struct stat status{};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || status.st_size <= 0) return;
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped != MAP_FAILED) bytes_ = {static_cast<std::byte*>(mapped), bytes};
  }
  mapped_file(mapped_file const&) = delete;
  mapped_file& operator=(mapped_file const&) = delete;
  ~mapped_file() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }

  // `n` objects at an offset; empty if they reach beyond the end.
  template <class T>
  [[nodiscard]] std::span<T const> at(std::uint64_t offset, std::uint64_t n) const noexcept {
    if (offset > bytes_.size() || offset % alignof(T) != 0) return {};
    if (n > (bytes_.size() - offset) / sizeof(T)) return {};
    return {reinterpret_cast<T const*>(bytes_.data() + offset), static_cast<std::size_t>(n)};
  }

 private:
  std::span<std::byte> bytes_;
};

// Finds the function that contains an address in the symbol table of its file: the linker's table for debuggers
// or else the loader's table. Without -rdynamic only the first table has most functions of a program. The file
// may differ from the loaded one by now; names may then be wrong, with no other effect.
void find_function(code_place& place, std::uintptr_t address) {
  const mapped_file file{place.module.c_str()};
  const auto header = file.at<ElfW(Ehdr)>(0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return;
  if (header[0].e_type == ET_EXEC) place.offset = address;  // addresses in the file equal those in memory
  if (header[0].e_shentsize != sizeof(ElfW(Shdr))) return;
  const auto sections = file.at<ElfW(Shdr)>(header[0].e_shoff, header[0].e_shnum);
  for (const ElfW(Word) type : {ElfW(Word){SHT_SYMTAB}, ElfW(Word){SHT_DYNSYM}}) {
    for (ElfW(Shdr) const& section : sections) {
      if (section.sh_type != type || section.sh_link >= sections.size()) continue;
      ElfW(Shdr) const& strings = sections[section.sh_link];
      const auto names = file.at<char>(strings.sh_offset, strings.sh_size);
      const auto symbols = file.at<ElfW(Sym)>(section.sh_offset, section.sh_size / sizeof(ElfW(Sym)));
      if (symbols.empty() || names.empty() || names.back() != '\0') continue;
      const auto found = std::ranges::find_if(symbols, [&](ElfW(Sym) const& symbol) {
        const bool is_function = (symbol.st_info & 0xf) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
        return is_function && place.offset - symbol.st_value < symbol.st_size &&
               symbol.st_name < names.size();
      });
      if (found != symbols.end()) place.function = names.data() + found->st_name;
      return;
    }
  }
}

// For the program, the loader knows only its invocation name, which is no path after a change of directory.
std::string path_of(Dl_info const& found) {
  Dl_info program{};
  char path[PATH_MAX];
  if (::dladdr(reinterpret_cast<void const*>(::getauxval(AT_PHDR)), &program) != 0 &&
      program.dli_fbase == found.dli_fbase) {
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
    if (length > 0) return {path, static_cast<std::size_t>(length)};
  }
  return found.dli_fname;
}

using std::string_view;

bool begins_with_one_of(string_view name, std::span<string_view const> beginnings) noexcept {
  return std::ranges::any_of(beginnings, [=](string_view begin) { return name.starts_with(begin); });
}

bool is_system_library(string_view path) noexcept {
  constexpr string_view names[] = {"libc.so",       "libstdc++",  "libc++",       "libgcc_s",
                                   "libpthread.so", "ld-linux",   "libm.so",      "ld-musl",
                                   "libc.musl",     "libsystem_", "libdyld.dylib"};
  return begins_with_one_of(path.substr(path.rfind('/') + 1), names);  // npos + 1 is 0
}

// Name prefixes as mangled by the Itanium ABI, without _ZN.
constexpr string_view standard_names[] = {"St", "Sa",         "Sb",           "Ss", "Si", "So",
                                          "Sd", "9__gnu_cxx", "10__cxxabiv1", "nw", "na"};
constexpr string_view standard_resources[] = {"25monotonic_buffer_resource", "28unsynchronized_pool_resource",
                                              "26synchronized_pool_resource", "15__pool_resource"};
// Functions that run their caller's code: constructors and bodies.
constexpr string_view running_callers_code[] = {
    "10arena_pushI", "10with_epochI",   "14with_workspaceI",      "8rehearseI",
    "7captureI",     "12capture_withI", "20fail_each_allocation", "6detail16construct_objectI"};

code_owner owner_by_name(string_view name) noexcept {
  const auto skip = [&](string_view prefix) {
    if (!name.starts_with(prefix)) return false;
    name.remove_prefix(prefix.size());
    return true;
  };
  if (name == "main") return code_owner::main;
  if (!skip("_Z")) return code_owner::program;
  if (skip("Th")) name.remove_prefix(name.find('_') + 1);  // a thunk's offset, as in "_ZThn16_N8tidemark"
  while (skip("Z")) continue;  // the name of a local entity begins with its function's name
  if (skip("N"))
    while (skip("K") || skip("V") || skip("R") || skip("O")) continue;
  if (skip("8tidemark"))
    return begins_with_one_of(name, running_callers_code) ? code_owner::standard : code_owner::resource;
  if (!begins_with_one_of(name, standard_names)) return code_owner::program;
  (void)skip("St");
  (void)skip("3__1");  // of libc++
  const bool is_resource = skip("3pmr") && begins_with_one_of(name, standard_resources);
  return is_resource ? code_owner::resource : code_owner::standard;
}

}  // namespace

// Uses dladdr instead of dl_iterate_phdr, whose lock a child finds taken after a fork by another thread
// inside it.
code_place find_code(std::uintptr_t address) noexcept {
  try {
    Dl_info found{};
    if (::dladdr(reinterpret_cast<void const*>(address), &found) != 0 && found.dli_fname != nullptr) {
      code_place place{path_of(found), address - reinterpret_cast<std::uintptr_t>(found.dli_fbase), {}};
      find_function(place, address);
      if (place.function.empty() && found.dli_sname != nullptr) place.function = found.dli_sname;
      return place;
    }
  } catch (std::exception const&) {
    // no memory for a text
  }
  return {.offset = address};
}

std::string code_text(code_place const& place) {
  std::string text;
  if (!place.function.empty()) {
    const std::unique_ptr<char, decltype(&std::free)> name{
        __cxa_demangle(place.function.c_str(), nullptr, nullptr, nullptr), &std::free};
    text = (name != nullptr ? name.get() : place.function) + " at ";
  }
  char offset[32];
  std::snprintf(offset, sizeof offset, "(+0x%zx)", static_cast<std::size_t>(place.offset));
  return text + place.module.substr(place.module.rfind('/') + 1) + offset;  // npos + 1 is 0
}

code_owner owner_of(std::uintptr_t address) noexcept {
  const code_place place = find_code(address);
  const code_owner owner = owner_by_name(place.function);
  return owner == code_owner::program && is_system_library(place.module) ? code_owner::standard : owner;
}

}  // namespace tidemark::detail
