// SPDX-License-Identifier: Apache-2.0
#include "symbol_table.hpp"

#if __has_include(<link.h>)

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstring>
#include <span>

#include <tidemark/core/file_descriptor.hpp>

namespace tidemark::detail {
namespace {

// A file in memory. All offsets are compared with its size, because it may be any file by now.
class mapped_file {
 public:
  /// It stays mapped as long as the process lives: names are read from it.
  explicit mapped_file(char const* path) noexcept {
    const file_descriptor file{::open(path, O_RDONLY | O_CLOEXEC)};
    struct stat status{};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || status.st_size <= 0) return;
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped != MAP_FAILED) bytes_ = {static_cast<std::byte const*>(mapped), bytes};
  }

  // What stands at an offset; empty if it reaches beyond the end.
  template <class T>
  [[nodiscard]] std::span<T const> at(std::uint64_t offset, std::uint64_t n) const noexcept {
    if (offset > bytes_.size() || offset % alignof(T) != 0) return {};
    if (n > (bytes_.size() - offset) / sizeof(T)) return {};
    return {reinterpret_cast<T const*>(bytes_.data() + offset), static_cast<std::size_t>(n)};
  }

 private:
  std::span<std::byte const> bytes_;
};

}  // namespace

symbol_table::symbol_table(char const* path) noexcept {
  const mapped_file file{path};
  const auto header = file.at<ElfW(Ehdr)>(0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return;
  is_at_fixed_address_ = header[0].e_type == ET_EXEC;
  if (header[0].e_shentsize != sizeof(ElfW(Shdr))) return;
  const auto sections = file.at<ElfW(Shdr)>(header[0].e_shoff, header[0].e_shnum);
  for (const ElfW(Word) type : {ElfW(Word){SHT_SYMTAB}, ElfW(Word){SHT_DYNSYM}}) {
    for (ElfW(Shdr) const& section : sections) {
      if (section.sh_type != type || section.sh_link >= sections.size()) continue;
      ElfW(Shdr) const& names = sections[section.sh_link];
      symbols_ = file.at<ElfW(Sym)>(section.sh_offset, section.sh_size / sizeof(ElfW(Sym)));
      names_ = file.at<char>(names.sh_offset, names.sh_size);
      if (!symbols_.empty() && !names_.empty() && names_.back() == '\0') return;
      symbols_ = {};
    }
  }
}

char const* symbol_table::function_at(std::uintptr_t address) const noexcept {
  for (ElfW(Sym) const& symbol : symbols_) {
    const bool is_function = (symbol.st_info & 0xf) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
    if (is_function && address - symbol.st_value < symbol.st_size && symbol.st_name < names_.size())
      return names_.data() + symbol.st_name;
  }
  return nullptr;
}

}  // namespace tidemark::detail

#else  // the loader's own table has to do

namespace tidemark::detail {

symbol_table::symbol_table(char const*) noexcept {}
char const* symbol_table::function_at(std::uintptr_t) const noexcept { return nullptr; }

}  // namespace tidemark::detail

#endif
