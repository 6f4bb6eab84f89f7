// SPDX-License-Identifier: Apache-2.0
#include <tidemark/process/process_view.hpp>

#include <unistd.h>

#include <cstring>

#include <tidemark/core/os_memory.hpp>
#include <tidemark/process/detail/file_calls.hpp>
#include <tidemark/process/shared_memory.hpp>

namespace tidemark {
namespace {

using detail::process_format;
using detail::process_header;
using detail::publication;
using enum shared_memory_refusal;

[[noreturn]] void refuse(std::string const& name, shared_memory_refusal reason, std::string const& why) {
  throw shared_memory_error{reason, name + ": " + why};
}

// Reads the header's first part instead of mapping it, because only the header says where to map.
process_format checked_format(int file, std::string const& name, std::uint32_t layout_version) {
  process_format format{};
  const ssize_t read = detail::may_call("pread") ? ::pread(file, &format, sizeof format, 0) : -1;
  detail::require_call(read >= 0, name, ": the header cannot be read");
  if (read != sizeof format || format.magic != process_format::expected_magic)
    refuse(name, damaged, "it is not a process arena");
  if (format.version > process_format::newest_version) {
    refuse(name, newer_version,
           "it is of version " + std::to_string(format.version) + ", and this program reads version " +
               std::to_string(process_format::newest_version));
  }
  if (format.version != process_format::newest_version || format.header_bytes != sizeof(process_header))
    refuse(name, damaged, "its header is damaged: its size does not match its version");
  const std::uint64_t last = format.address + format.bytes;
  if (format.address == 0 || format.address % system_memory().page_size() != 0 || last < format.address)
    refuse(name, damaged, "its header is damaged: its memory range is impossible");
  if (format.layout != detail::library_layout(layout_version)) {
    refuse(name, other_layout,
           "its writer was built with another compiler or standard library, or has another layout version "
           "than " +
               std::to_string(layout_version));
  }
  return format;
}

}  // namespace

process_view::process_view(int file, std::uint32_t layout_version)
    : process_view{file, "process_view of file descriptor " + std::to_string(file), layout_version} {}

process_view::process_view(std::string const& path, std::uint32_t layout_version)
    : process_view{open_shared_memory(path).get(), "process_view of '" + path + "'", layout_version} {}

process_view::process_view(int file, std::string const& name, std::uint32_t layout_version)
    : name_{name},
      memory_{file, checked_format(file, name, layout_version).address, name},
      generation_{newest_publication()} {}

process_header const& process_view::header() const noexcept {
  return *reinterpret_cast<process_header const*>(memory_.range().begin);
}

publication process_view::newest_publication() const {
  const byte_range range = memory_.range();
  if (range.size < sizeof(process_header) || header().format.bytes != range.size) {
    refuse(name_, damaged,
           "it is truncated, or its header is damaged: the file has " + std::to_string(range.size) +
               " bytes, and its header says " + std::to_string(header().format.bytes));
  }
  const std::uint64_t offset = header().newest.load(std::memory_order_acquire);
  if (offset == 0) refuse(name_, unpublished, "nothing is published in it yet");
  if (offset < sizeof(process_header) || offset % alignof(publication) != 0 || offset > range.size ||
      range.size - offset < sizeof(publication)) {
    refuse(name_, damaged, "its header is damaged: its newest generation lies outside the memory");
  }
  publication found;
  std::memcpy(&found, reinterpret_cast<void const*>(range.begin + offset), sizeof found);
  const std::uintptr_t first = range.begin + sizeof(process_header);
  if (found.generation == 0 || found.end != range.begin + offset + sizeof found || found.root < first ||
      found.root >= found.end) {
    refuse(name_, damaged, "its newest generation is damaged: its root lies outside the memory");
  }
  return found;
}

void const* process_view::root(std::size_t bytes, std::size_t align, std::uint64_t type) const {
  if (generation_.root_type != type || generation_.root % align != 0 ||
      bytes > generation_.end - generation_.root) {
    refuse(name_, other_root, "its root has another type than requested");
  }
  return reinterpret_cast<void const*>(generation_.root);
}

bool process_view::is_newest() const noexcept {
  const std::uint64_t newest = header().newest.load(std::memory_order_relaxed);
  return memory_.range().begin + newest + sizeof(publication) == generation_.end;
}

bool process_view::update() {
  const publication newest = newest_publication();
  if (newest.end == generation_.end) return false;
  if (newest.generation <= generation_.generation) {
    refuse(name_, damaged, "its newest generation is older than the one before");
  }
  generation_ = newest;
  return true;
}

}  // namespace tidemark
