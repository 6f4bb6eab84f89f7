// SPDX-License-Identifier: Apache-2.0
// The memory of the fake device: addresses, physical memory and blocks, by the driver's rules. It has no lock
// of its own: fake_device.hpp has the lock.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/cuda/driver/driver.hpp>

#include "fake_refusals.hpp"

namespace tidemark::test {

/// The properties of a fake device.
struct fake_device_options {
  std::size_t capacity_bytes = std::size_t{1} << 30;     ///< of each device
  std::size_t granularity_bytes = std::size_t{2} << 20;  ///< a power of two, not below the host's page
  std::size_t pool_granule_bytes = 512;  ///< the step of a pool's growth; a real pool grows by some MiB
  bool touchable = false;  ///< device memory exists on the host, if it is mapped and access was granted
  gpu::device_number devices = 1;      ///< 0: every call returns no_device
  gpu::device_set without_peers = {};  ///< devices that cannot access others' memory, nor others theirs

  /// Calls that a capture which goes on refuses by modes and threads.
  std::vector<fake_refusal> refusals = observed_refusals();
};

/// Addresses are reservations of the host without memory behind them, so touching one crashes. Touchable
/// memory initially holds junk, never zeros. Its contents end with its mapping, although the driver would
/// keep them with the handle. Two mappings of a handle do not share contents.
///
/// Exportable memory is a host file (`memfd_create`), which all its mappings share and which keeps its
/// contents. Its file descriptors are real. It lives while it has a handle, a mapping or an open descriptor.
/// A descriptor counts as closed when the returned number is closed, regardless of copies.
class fake_memory {
 public:
  using status = gpu::status;

  /// The kind of a block, which determines the call that frees it.
  enum class block_kind { device, managed, pinned, pooled, graph };

  explicit fake_memory(fake_device_options const& options)
      : options_{options}, used_bytes_(static_cast<std::size_t>(options.devices)) {
    EXPECT_TRUE(std::has_single_bit(options.granularity_bytes));
    EXPECT_GE(options.granularity_bytes, system_memory().page_size());
  }
  fake_memory(fake_memory const&) = delete;
  fake_memory& operator=(fake_memory const&) = delete;
  ~fake_memory() {
    EXPECT_TRUE(mappings_.empty()) << mappings_.size() << " mappings were not unmapped";
    EXPECT_TRUE(reservations_.empty()) << reservations_.size() << " reservations of addresses were not freed";
    EXPECT_TRUE(physical_.empty()) << physical_.size() << " handles of physical memory were not released";
    collect();
    EXPECT_TRUE(descriptors_.empty()) << descriptors_.size() << " file descriptors were not closed";
    for (auto const& [first, left] : blocks_) {
      ADD_FAILURE() << "a " << name_of(left.kind) << " block of " << left.bytes << " bytes was not freed";
      system_memory().release(left.pages.data(), left.pages.size);
    }
    for (auto const& [first, bytes] : reservations_)
      system_memory().release(reinterpret_cast<void*>(first), bytes);
  }

  // ---- addresses and the memory behind them ----

  status reserve(std::size_t bytes, std::size_t align, byte_range& range) {
    if (!whole(bytes) || (align != 0 && !std::has_single_bit(align))) return status::invalid_value;
    void* const first = system_memory().reserve(bytes, std::max(align, options_.granularity_bytes));
    if (first == nullptr) return status::out_of_memory;
    range = {reinterpret_cast<std::uintptr_t>(first), bytes};
    reservations_.emplace(range.begin, bytes);
    return status::success;
  }
  status free_reservation(byte_range range) {
    const auto found = reservations_.find(range.begin);
    if (found == reservations_.end() || found->second != range.size) return status::invalid_value;
    if (!mappings_in(range).empty()) return status::invalid_value;
    reservations_.erase(found);
    system_memory().release(range.data(), range.size);
    return status::success;
  }
  status create(gpu::memory_properties const& wanted, std::size_t bytes, gpu::physical_handle& handle) {
    if (!whole(bytes)) return status::invalid_value;
    if (!charge(wanted.device, bytes)) return status::out_of_memory;
    physical_bytes_ += bytes;
    const auto made =
        std::make_shared<physical>(*this, wanted.device, bytes, wanted.exported_as, ++last_identity_);
    if (wanted.exported_as != gpu::handle_type::none) {
      made->file = ::memfd_create("fake memory of a device", MFD_CLOEXEC);
      EXPECT_EQ(::ftruncate(made->file, static_cast<off_t>(bytes)), 0);
      exportable_.emplace_back(made);
    }
    physical_.emplace(handle = ++last_handle_, made);
    return status::success;
  }
  status release(gpu::physical_handle handle) {
    return physical_.erase(handle) == 1 ? status::success : status::invalid_value;
  }
  /// The documentation requires the type at creation, and does not name the result otherwise.
  status export_handle(gpu::physical_handle handle, gpu::handle_type type, gpu::shareable_handle& shared) {
    const auto found = physical_.find(handle);
    if (found == physical_.end() || type == gpu::handle_type::none || found->second->exported_as != type)
      return status::invalid_value;
    gpu::shareable_handle made{.type = type};
    if (type == gpu::handle_type::fabric) {
      std::memcpy(made.fabric.data(), &found->second->identity, sizeof found->second->identity);
    } else {
      made.file_descriptor = ::fcntl(found->second->file, F_DUPFD_CLOEXEC, 0);
      if (made.file_descriptor < 0) return status::unknown;
      descriptors_.emplace_back(made.file_descriptor, found->second);
    }
    shared = made;
    return status::success;
  }
  /// Returns another handle of the same memory. A fabric handle does not keep the memory alive; its use after
  /// the end is not documented.
  status import_handle(gpu::shareable_handle const& shared, gpu::physical_handle& handle) {
    for (std::weak_ptr<physical> const& each : exportable_) {
      const std::shared_ptr<physical> memory = each.lock();
      if (memory == nullptr || memory->exported_as != shared.type || !names(shared, *memory)) continue;
      physical_.emplace(handle = ++last_handle_, memory);
      return status::success;
    }
    return status::invalid_value;
  }
  /// Ends memory that only an open file descriptor kept alive.
  void collect() {
    std::erase_if(descriptors_, [](auto const& each) { return !is_of(each.first, *each.second); });
    std::erase_if(exportable_, [](std::weak_ptr<physical> const& each) { return each.expired(); });
  }
  status map(byte_range range, gpu::physical_handle handle) {
    const auto found = physical_.find(handle);
    if (found == physical_.end()) return status::invalid_value;
    if (range.size != found->second->bytes || range.begin % options_.granularity_bytes != 0 ||
        !reserved(range) || !mappings_in(range).empty())
      return status::invalid_value;
    mappings_.emplace(range.begin, mapping{.bytes = range.size, .memory = found->second, .devices = {}});
    found->second->mapped_at.push_back(range.begin);
    return status::success;
  }
  /// Whole mappings, one behind the other, as llama.cpp's pool unmaps all it has by one call on NVIDIA's
  /// devices. Its run begins and ends in a gap; that others do as well is not documented.
  status unmap(byte_range range) {
    std::vector<std::uintptr_t> const parts = whole_mappings(range);
    if (parts.empty()) return status::invalid_value;
    for (std::uintptr_t first : parts) {
      const auto found = mappings_.find(first);
      if (!found->second.devices.empty() && options_.touchable) {
        const byte_range part{first, found->second.bytes};
        if (found->second.memory->file >= 0) {
          replace_by(part, -1);
        } else {
          spoil(part);
          EXPECT_TRUE(system_memory().decommit(part.data(), part.size));
        }
      }
      std::erase(found->second.memory->mapped_at, first);
      mappings_.erase(found);
    }
    return status::success;
  }
  /// Returns true if a device can access memory of another device.
  [[nodiscard]] bool are_peers(gpu::device_number a, gpu::device_number b) const {
    return a != b && !options_.without_peers.contains(a) && !options_.without_peers.contains(b);
  }
  /// All of it or nothing. @pre the devices exist.
  status allow_access(byte_range range, gpu::device_set devices) {
    if (devices.empty() || !whole(range.size) || !reserved(range)) return status::invalid_value;
    std::vector<std::uintptr_t> const parts = whole_mappings(range);
    if (parts.empty()) return status::invalid_value;
    for (std::uintptr_t first : parts)
      if (!can_access(devices, mappings_.at(first).memory->device)) return status::invalid_device;
    for (std::uintptr_t first : parts) {
      mapping& part = mappings_.at(first);
      const bool fresh = part.devices.empty();
      part.devices = united(part.devices, devices);
      if (!fresh || !options_.touchable) continue;
      if (part.memory->file >= 0) {
        replace_by({first, part.bytes}, part.memory->file);
        if (!std::exchange(part.memory->spoiled, true)) spoil({first, part.bytes});
        continue;
      }
      if (!system_memory().commit(reinterpret_cast<void*>(first), part.bytes)) return status::out_of_memory;
      spoil({first, part.bytes});
    }
    return status::success;
  }

  // ---- blocks ----

  /// A block, at a multiple of 256 and of nothing larger, since the driver promises no more.
  status allocate(block_kind kind, gpu::device_number device, std::size_t bytes, std::uintptr_t& first) {
    if (bytes == 0) return status::invalid_value;
    const std::size_t page = system_memory().page_size();
    const std::size_t pages = bytes > SIZE_MAX / 2 ? 0 : (bytes + 512 + page - 1) / page * page;
    if (pages == 0) return status::out_of_memory;
    if (kind != block_kind::pinned && !charge(device, bytes)) return status::out_of_memory;
    // A page behind it is never touchable, so that writing far beyond a block crashes.
    void* const reserved = system_memory().reserve(pages + page, page);
    if (reserved == nullptr) {
      if (kind != block_kind::pinned) refund(device, bytes);
      return status::out_of_memory;
    }
    const byte_range range{reinterpret_cast<std::uintptr_t>(reserved), pages + page};
    const std::uintptr_t latest = (range.begin + pages - bytes) / 256 * 256;
    first = latest % 512 == 0 ? latest - 256 : latest;
    if (options_.touchable || kind == block_kind::pinned || kind == block_kind::managed) {
      EXPECT_TRUE(system_memory().commit(reserved, pages));
      spoil({first, bytes});
    }
    const bool is_of_all = kind == block_kind::pinned || kind == block_kind::managed;
    blocks_.emplace(first, block{.kind = kind,
                                 .device = device,
                                 .bytes = bytes,
                                 .pages = range,
                                 .devices = is_of_all ? all_devices() : gpu::device_set{device}});
    block_bytes_[static_cast<std::size_t>(kind)] += bytes;
    return status::success;
  }
  /// Work on these devices may touch the block too. @pre it is one, and the devices exist.
  status allow_access_to_block(std::uintptr_t first, gpu::device_set devices) {
    block& granted = blocks_.at(first);
    if (!can_access(devices, granted.device)) return status::invalid_device;
    granted.devices = united(granted.devices, devices);
    return status::success;
  }
  /// Returns true if all of these devices can access memory of the owner.
  [[nodiscard]] bool can_access(gpu::device_set devices, gpu::device_number owner) const {
    for (gpu::device_number each = 0; each < options_.devices; ++each)
      if (devices.contains(each) && each != owner && !are_peers(each, owner)) return false;
    return true;
  }
  /// Takes back a block of this kind. Returns false if none exists.
  bool deallocate(block_kind kind, std::uintptr_t first) {
    const auto found = blocks_.find(first);
    if (found == blocks_.end() || found->second.kind != kind) return false;
    block const& gone = found->second;
    if (options_.touchable || kind == block_kind::pinned || kind == block_kind::managed)
      spoil({first, gone.bytes});
    if (kind != block_kind::pinned) refund(gone.device, gone.bytes);
    system_memory().release(gone.pages.data(), gone.pages.size);
    block_bytes_[static_cast<std::size_t>(kind)] -= gone.bytes;
    blocks_.erase(found);
    return true;
  }

  // ---- queries of tests ----

  [[nodiscard]] std::size_t granularity() const { return options_.granularity_bytes; }
  [[nodiscard]] std::size_t capacity() const { return options_.capacity_bytes; }
  /// Bytes of a device's capacity that are taken.
  [[nodiscard]] std::size_t used(gpu::device_number device) const {
    return used_bytes_.at(static_cast<std::size_t>(device));
  }
  /// Bytes of addresses that are reserved.
  [[nodiscard]] std::size_t reserved_bytes() const {
    std::size_t sum = 0;
    for (auto const& [first, bytes] : reservations_) sum += bytes;
    return sum;
  }
  /// Bytes of physical memory, mapped or not.
  [[nodiscard]] std::size_t physical_bytes() const { return physical_bytes_; }
  /// Bytes of addresses with memory behind them.
  [[nodiscard]] std::size_t mapped_bytes() const {
    std::size_t sum = 0;
    for (auto const& [first, part] : mappings_) sum += part.bytes;
    return sum;
  }
  /// Bytes in blocks of that kind.
  [[nodiscard]] std::size_t block_bytes(block_kind kind) const {
    return block_bytes_[static_cast<std::size_t>(kind)];
  }
  /// Bytes of the block that begins there; 0 if none does.
  [[nodiscard]] std::size_t bytes_of(std::uintptr_t first) const {
    const auto found = blocks_.find(first);
    return found == blocks_.end() ? 0 : found->second.bytes;
  }
  /// Returns the other addresses at which this memory is mapped.
  [[nodiscard]] std::vector<byte_range> aliases_of(byte_range range) const {
    std::vector<byte_range> found;
    for (std::uintptr_t first : mappings_in(range)) {
      mapping const& part = mappings_.at(first);
      const std::uintptr_t begin = std::max(first, range.begin);
      const std::uintptr_t end = std::min(first + part.bytes, range.end());
      for (std::uintptr_t other : part.memory->mapped_at)
        if (other != first) found.push_back({other + (begin - first), end - begin});
    }
    return found;
  }
  /// Reads or writes a byte of each page of a range, as a kernel does. @pre it is touchable and accessible.
  static void touch(byte_range range, bool writes) {
    for (std::size_t i = 0; i < range.size; i += 4096) {
      auto* const byte = static_cast<unsigned char volatile*>(range.data()) + i;
      const unsigned char seen = *byte;
      if (writes) *byte = static_cast<unsigned char>(seen + 1);
    }
  }
  /// Returns true if a block of this kind begins at this address.
  [[nodiscard]] bool holds(block_kind kind, std::uintptr_t first) const {
    const auto found = blocks_.find(first);
    return found != blocks_.end() && found->second.kind == kind;
  }
  /// Returns true if work on the device may touch the bytes. They must lie in one block or in mappings with
  /// access granted. Only the block's own device may touch it, except for blocks of pools, because
  /// `cuCtxEnablePeerAccess` is missing here.
  [[nodiscard]] bool accessible(byte_range range, gpu::device_number device) const {
    if (const auto after = blocks_.upper_bound(range.begin); after != blocks_.begin()) {
      auto const& [first, held] = *std::prev(after);
      if (range.end() <= first + held.bytes) return held.devices.contains(device);
    }
    std::uintptr_t next = range.begin;
    while (next < range.end()) {
      const auto after = mappings_.upper_bound(next);
      if (after == mappings_.begin()) return false;
      auto const& [first, part] = *std::prev(after);
      if (next >= first + part.bytes || !part.devices.contains(device)) return false;
      next = first + part.bytes;
    }
    return true;
  }

 private:
  // Returns its bytes when nothing refers to it any longer.
  struct physical {
    physical(fake_memory& of_machine, gpu::device_number of_device, std::size_t size, gpu::handle_type type,
             std::uint64_t number)
        : owner{of_machine}, device{of_device}, bytes{size}, exported_as{type}, identity{number} {}
    physical(physical const&) = delete;
    physical& operator=(physical const&) = delete;
    ~physical() {
      if (file >= 0) ::close(file);
      owner.refund(device, bytes);
      owner.physical_bytes_ -= bytes;
    }

    fake_memory& owner;
    gpu::device_number device;
    std::size_t bytes;
    gpu::handle_type exported_as;
    std::uint64_t identity;
    int file = -1;  // the file behind its mappings, if it can be exported
    bool spoiled = false;
    std::vector<std::uintptr_t> mapped_at;  // first addresses of its mappings
  };
  struct mapping {
    std::size_t bytes = 0;
    std::shared_ptr<physical> memory;
    gpu::device_set devices;  // that may touch it
  };
  struct block {
    block_kind kind;
    gpu::device_number device;
    std::size_t bytes;
    byte_range pages;         // of the host
    gpu::device_set devices;  // that may touch it
  };

  static char const* name_of(block_kind kind) {
    constexpr char const* names[] = {"device", "managed", "pinned", "pool's", "graph's"};
    return names[static_cast<std::size_t>(kind)];
  }

  [[nodiscard]] bool whole(std::size_t bytes) const {
    return bytes != 0 && bytes % options_.granularity_bytes == 0;
  }
  [[nodiscard]] bool reserved(byte_range range) const {
    const auto after = reservations_.upper_bound(range.begin);
    if (after == reservations_.begin()) return false;
    auto const& [first, bytes] = *std::prev(after);
    return range.begin - first <= bytes && range.size <= bytes - (range.begin - first);
  }
  /// Returns the first addresses of all mappings with a byte in the range.
  [[nodiscard]] std::vector<std::uintptr_t> mappings_in(byte_range range) const {
    std::vector<std::uintptr_t> found;
    auto at = mappings_.upper_bound(range.begin);
    if (at != mappings_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > range.begin) --at;
    for (; at != mappings_.end() && at->first < range.end(); ++at) found.push_back(at->first);
    return found;
  }
  /// The same, if the range is whole mappings, one behind the other; else none.
  [[nodiscard]] std::vector<std::uintptr_t> whole_mappings(byte_range range) const {
    std::vector<std::uintptr_t> parts = mappings_in(range);
    std::uintptr_t next = range.begin;
    for (std::uintptr_t first : parts) {
      if (first != next) return {};
      next = first + mappings_.at(first).bytes;
    }
    if (next != range.end()) return {};
    return parts;
  }
  bool charge(gpu::device_number device, std::size_t bytes) {
    std::size_t& used_here = used_bytes_.at(static_cast<std::size_t>(device));
    if (bytes > options_.capacity_bytes - used_here) return false;
    used_here += bytes;
    return true;
  }
  void refund(gpu::device_number device, std::size_t bytes) {
    used_bytes_.at(static_cast<std::size_t>(device)) -= bytes;
  }
  [[nodiscard]] gpu::device_set all_devices() const {
    gpu::device_set all;
    for (gpu::device_number each = 0; each < options_.devices; ++each) all.insert(each);
    return all;
  }
  [[nodiscard]] gpu::device_set united(gpu::device_set a, gpu::device_set b) const {
    for (gpu::device_number each = 0; each < options_.devices; ++each)
      if (b.contains(each)) a.insert(each);
    return a;
  }
  // Returns true if an open file descriptor refers to this memory.
  static bool is_of(int number, physical const& memory) {
    struct stat asked{}, known{};
    return ::fstat(number, &asked) == 0 && ::fstat(memory.file, &known) == 0 &&
           asked.st_ino == known.st_ino && asked.st_dev == known.st_dev;
  }
  static bool names(gpu::shareable_handle const& shared, physical const& memory) {
    if (shared.type == gpu::handle_type::file_descriptor) return is_of(shared.file_descriptor, memory);
    return std::memcmp(shared.fabric.data(), &memory.identity, sizeof memory.identity) == 0;
  }
  // Puts a file behind the addresses, or, for -1, nothing that can be touched.
  static void replace_by(byte_range range, int file) {
    const int access = file >= 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    const int flags = MAP_FIXED | (file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    EXPECT_EQ(::mmap(range.data(), range.size, access, flags, file, 0), range.data());
  }
  // Fills memory that is given or taken back. Only a part of it, because a large block would otherwise become
  // resident.
  static void spoil(byte_range range) {
    std::memset(range.data(), 0xEE, std::min(range.size, std::size_t{1} << 20));
  }

  fake_device_options options_;
  std::vector<std::size_t> used_bytes_;  // of each device
  std::map<std::uintptr_t, std::size_t> reservations_;
  std::size_t physical_bytes_ = 0;
  std::map<gpu::physical_handle, std::shared_ptr<physical>> physical_;  // by handles that are not released
  std::map<std::uintptr_t, mapping> mappings_;
  std::vector<std::pair<int, std::shared_ptr<physical>>> descriptors_;  // open at the last check
  std::vector<std::weak_ptr<physical>> exportable_;
  std::map<std::uintptr_t, block> blocks_;
  std::array<std::size_t, 5> block_bytes_{};  // of each kind
  gpu::physical_handle last_handle_ = 0;
  std::uint64_t last_identity_ = 0;
};

}  // namespace tidemark::test
