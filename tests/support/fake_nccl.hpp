// SPDX-License-Identifier: Apache-2.0
// NCCL for tests on a fake device: memory, communicators and registrations, by the rules that NCCL documents,
// including rules that NCCL does not check.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/cuda/nccl/nccl.hpp>

#include "fake_device.hpp"
#include "recording_supply.hpp"

namespace tidemark::test {

/// Maps memory by driver calls, like NCCL, so that the fake device checks that no work uses freed memory.
/// Fails the test for these faults:
/// - memory is registered twice, or missing when registered
/// - memory is freed or missing while it is registered
/// - a range is deregistered that is not registered, or while work is on the stream
/// - the ranks of a clique register windows of different sizes
///
/// Failure: `fail_from` and `fail_count` count allocations and registrations; `fail_next` fails any call. The
/// destructor expects that nothing is registered or allocated. Thread-safety: one thread at a time.
class fake_nccl final : public gpu::nccl, public supply {
 public:
  using status = gpu::nccl_status;

  explicit fake_nccl(fake_device& device) : device_{&device} {}
  ~fake_nccl() override {
    for (rank const& each : ranks_)
      EXPECT_TRUE(each.registered.empty()) << each.registered.size() << " ranges were not deregistered";
    EXPECT_TRUE(blocks_.empty()) << blocks_.size() << " blocks were not freed";
    expect_the_same_on_all_ranks();
  }

  status failure = status::system_error;  ///< result of registrations that are made to fail
  bool has_windows = true;                ///< false: they are null
  bool registers_buffers = true;          ///< false: as with NCCL_LOCAL_REGISTER=0
  status end_of_call = status::success;   ///< of registrations that are in progress first
  int polls = 0;                          ///< how often a registration is in progress before it ends

  /// Communicators of one clique, a rank each, all on one device.
  std::vector<gpu::nccl_communicator> clique(std::vector<gpu::stream_handle> const& streams,
                                             gpu::device_number device = 0) {
    std::vector<gpu::nccl_communicator> made;
    for (gpu::stream_handle stream : streams) {
      ranks_.push_back(
          {.clique = cliques_, .device = device, .stream = stream, .registered = {}, .windows = {}});
      made.push_back(reinterpret_cast<gpu::nccl_communicator>(&ranks_.back()));
    }
    ++cliques_;
    return made;
  }
  /// One alone.
  gpu::nccl_communicator communicator(gpu::stream_handle stream, gpu::device_number device = 0) {
    return clique({stream}, device).front();
  }
  /// Makes the next call of one function fail.
  void fail_next(std::string const& name, status result) { planned_[name] = result; }
  /// Calls of one function so far.
  [[nodiscard]] std::size_t count(std::string_view name) const {
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }
  /// Returns true if one registration of a communicator covers all of a block.
  [[nodiscard]] bool has(gpu::nccl_communicator communicator, void const* block, std::size_t bytes) const {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    return std::ranges::any_of(rank_of(communicator).registered, [&](auto const& each) {
      return each.second.contains(address) && address + bytes <= each.second.end();
    });
  }
  /// Registrations of a communicator.
  [[nodiscard]] std::size_t registrations(gpu::nccl_communicator communicator) const {
    return rank_of(communicator).registered.size();
  }
  /// The flags of the last window.
  [[nodiscard]] gpu::nccl_window_flags last_flags() const { return last_flags_; }
  /// Forgets registrations that would be left without an owner, as after a loss on purpose.
  void drop_registrations() {
    for (rank& each : ranks_) each.registered.clear();
  }
  void drop_windows() {
    for (rank& each : ranks_) each.windows.clear();
  }
  /// Fails if a rank lacks a registration of the others, because these would wait for it.
  void expect_the_same_on_all_ranks() {
    for (rank const& one : ranks_)
      for (rank const& other : ranks_)
        if (one.clique == other.clique) {
          EXPECT_EQ(one.windows, other.windows) << "ranks register other windows";
        }
  }

  status allocate(std::size_t bytes, std::uintptr_t& block) noexcept override {
    if (const status planned = record_call("ncclMemAlloc"); planned != status::success) return planned;
    if (this_one_fails()) return status::unhandled_cuda_error;
    gpu::device_number device = 0;
    std::size_t granularity = 0;
    byte_range range;
    gpu::physical_handle memory = 0;
    // NCCL reports only that a call of CUDA failed.
    if (bytes == 0 || device_->current_device(device) != gpu::status::success ||
        device_->granularity(device, granularity) != gpu::status::success ||
        device_->create(device, detail::align_up(bytes, granularity), memory) != gpu::status::success)
      return status::unhandled_cuda_error;
    const std::size_t rounded = detail::align_up(bytes, granularity);
    bool good = device_->reserve(rounded, granularity, range) == gpu::status::success;
    if (good && device_->map(range, memory) != gpu::status::success) {
      (void)device_->free_reservation(range);
      good = false;
    } else if (good && device_->allow_access(range, device) != gpu::status::success) {
      (void)device_->unmap(range);
      (void)device_->free_reservation(range);
      good = false;
    }
    (void)device_->release(memory);  // it stays as long as it is mapped
    if (!good) return status::unhandled_cuda_error;
    blocks_.emplace(range.begin, rounded);
    outstanding += rounded;
    block = range.begin;
    return status::success;
  }
  status free(std::uintptr_t block) noexcept override {
    if (const status planned = record_call("ncclMemFree"); planned != status::success) return planned;
    const auto found = blocks_.find(block);
    if (found == blocks_.end()) return status::invalid_argument;
    const byte_range range{block, found->second};
    for (rank const& each : ranks_) EXPECT_FALSE(overlaps(each, range)) << "freed while it is registered";
    if (device_->unmap(range) != gpu::status::success ||
        device_->free_reservation(range) != gpu::status::success)
      return status::unhandled_cuda_error;
    outstanding -= range.size;
    blocks_.erase(found);
    return status::success;
  }

  status device_of(gpu::nccl_communicator communicator, gpu::device_number& device) noexcept override {
    if (const status planned = record_call("ncclCommCuDevice"); planned != status::success) return planned;
    if (communicator == nullptr) return status::invalid_argument;
    device = rank_of(communicator).device;
    return status::success;
  }
  status progress(gpu::nccl_communicator communicator, status& now) noexcept override {
    if (const status planned = record_call("ncclCommGetAsyncError"); planned != status::success)
      return planned;
    rank& of = rank_of(communicator);
    if (of.polls_left > 0 && --of.polls_left > 0) {
      now = status::in_progress;
      return status::success;
    }
    auto finish = std::exchange(of.finish, nullptr);
    now = end_of_call == status::success && finish ? finish() : end_of_call;
    return status::success;
  }
  status register_buffer(gpu::nccl_communicator communicator, byte_range range,
                         void*& handle) noexcept override {
    return begin_registration("ncclCommRegister", communicator, [this, &handle, communicator, range] {
      handle = nullptr;
      return registers_buffers ? add(rank_of(communicator), range, handle) : status::success;
    });
  }
  status deregister_buffer(gpu::nccl_communicator communicator, void* handle) noexcept override {
    const status planned = record_call("ncclCommDeregister");
    return planned != status::success ? planned : remove(rank_of(communicator), handle);
  }
  status register_window(gpu::nccl_communicator communicator, byte_range range, gpu::nccl_window_flags flags,
                         gpu::nccl_window& window) noexcept override {
    last_flags_ = flags;
    return begin_registration("ncclCommWindowRegister", communicator, [this, &window, communicator, range] {
      window = nullptr;
      if (!has_windows) return status::success;
      constexpr std::size_t required_alignment = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT
      if (range.begin % required_alignment != 0) return status::invalid_argument;
      rank& of = rank_of(communicator);
      void* handle = nullptr;
      const status added = add(of, range, handle);
      if (added != status::success) return added;
      of.windows.push_back(range.size);
      for (rank const& other : ranks_) {
        const std::size_t both = std::min(of.windows.size(), other.windows.size());
        if (other.clique != of.clique) continue;
        EXPECT_TRUE(std::equal(of.windows.begin(), of.windows.begin() + static_cast<std::ptrdiff_t>(both),
                               other.windows.begin()))
            << "a window of another size than on another rank";
      }
      window = static_cast<gpu::nccl_window>(handle);
      return status::success;
    });
  }
  status deregister_window(gpu::nccl_communicator communicator, gpu::nccl_window window) noexcept override {
    const status planned = record_call("ncclCommWindowDeregister");
    return planned != status::success ? planned : remove(rank_of(communicator), window);
  }

 private:
  struct rank {
    int clique;
    gpu::device_number device;
    gpu::stream_handle stream;                        // its work uses the registered memory
    std::map<std::uintptr_t, byte_range> registered;  // by handle
    std::vector<std::size_t> windows;                 // sizes of all so far
    int polls_left = 0;
    std::function<status()> finish = nullptr;  // of a call that is in progress
  };

  rank& rank_of(gpu::nccl_communicator communicator) const {
    const auto found = std::ranges::find_if(
        ranks_, [&](rank const& each) { return static_cast<void const*>(&each) == communicator; });
    EXPECT_NE(found, ranks_.end()) << "no such communicator";
    return const_cast<rank&>(*found);
  }
  static bool overlaps(rank const& of, byte_range range) {
    return std::ranges::any_of(of.registered, [&](auto const& each) {
      return each.second.begin < range.end() && range.begin < each.second.end();
    });
  }
  status record_call(char const* name) {
    ++counts_[name];
    const auto found = planned_.find(name);
    if (found == planned_.end()) return status::success;
    return planned_.extract(found).mapped();
  }
  template <class Body>
  status begin_registration(char const* name, gpu::nccl_communicator communicator, Body body) {
    if (const status planned = record_call(name); planned != status::success) return planned;
    if (this_one_fails()) return failure;
    if (polls == 0) return body();
    rank& of = rank_of(communicator);
    EXPECT_EQ(of.finish, nullptr) << "a call while another is in progress";
    of.polls_left = polls;
    of.finish = std::move(body);
    return status::in_progress;
  }
  status add(rank& of, byte_range range, void*& handle) {
    if (!device_->accessible(range.data(), range.size, of.device)) {
      ADD_FAILURE() << "registers memory that is not there";
      return status::unhandled_cuda_error;
    }
    EXPECT_FALSE(overlaps(of, range)) << "registered twice";
    next_handle_ += 16;
    of.registered.emplace(next_handle_, range);
    handle = reinterpret_cast<void*>(next_handle_);
    return status::success;
  }
  status remove(rank& of, void* handle) {
    const auto found = of.registered.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == of.registered.end()) {
      ADD_FAILURE() << "deregistered what is not registered";
      return status::invalid_usage;
    }
    EXPECT_TRUE(device_->accessible(found->second.data(), found->second.size, of.device))
        << "its memory went before it was deregistered";
    EXPECT_EQ(device_->pending(of.stream), 0u) << "deregistered while work may use it";
    of.registered.erase(found);
    return status::success;
  }

  fake_device* device_;
  std::list<rank> ranks_;  // handles are their addresses
  int cliques_ = 0;
  std::map<std::uintptr_t, std::size_t> blocks_;
  std::map<std::string, status> planned_;
  std::map<std::string, std::size_t, std::less<>> counts_;
  std::uintptr_t next_handle_ = 0x1000;
  gpu::nccl_window_flags last_flags_ = gpu::nccl_window_flags::none;
};

}  // namespace tidemark::test
