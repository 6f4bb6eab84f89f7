// SPDX-License-Identifier: Apache-2.0
// Strategy: two and three fake devices, whose kernels are checked for access, and memory that is exported and
// imported in one process. The fake shares this memory like the driver does between two processes. File
// descriptors are real, so that leaked descriptors are found. Each call fails once.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "caught.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"
#include "fake_failures.hpp"
#include "fake_units.hpp"
#include "process_memory.hpp"
#include "violation_recorder.hpp"
#include "warning_recorder.hpp"

namespace tidemark::test {
namespace {

using gpu::device_set;
using gpu::handle_type;
using gpu::status;

test::fake_device_options devices(gpu::device_number n, bool touchable = false) {
  return {.capacity_bytes = 64 * unit, .granularity_bytes = unit, .touchable = touchable, .devices = n};
}

/// Makes a device current meanwhile.
class as_current {
 public:
  as_current(fake_device& machine, gpu::device_number device)
      : machine_{machine}, before_{machine.current_now()} {
    EXPECT_EQ(machine_.make_current(device), status::success);
  }
  as_current(as_current const&) = delete;
  as_current& operator=(as_current const&) = delete;
  ~as_current() { EXPECT_EQ(machine_.make_current(before_), status::success); }

 private:
  fake_device& machine_;
  gpu::device_number before_;
};

gpu::stream stream_of(fake_device& machine, gpu::device_number device) {
  const as_current there{machine, device};
  return gpu::stream{machine};
}

/// Puts a kernel that writes on a stream of a device.
void write(fake_device& machine, gpu::device_number device, gpu::stream_handle stream, byte_range range) {
  const as_current there{machine, device};
  machine.write(stream, range);
}

// ---- sets of devices --------------------------------------------------------------------------------------

static_assert(device_set{}.empty() && device_set{3} == device_set{3, 3} && (device_set{0, 63}).size() == 2);
static_assert(device_set{1, 2}.contains(2) && !device_set{1, 2}.contains(0));
static_assert(!device_set{0}.contains(64) && !device_set{0}.contains(-1));
static_assert(std::is_trivially_copyable_v<device_set>);

TEST(device_set, rejects_numbers_that_are_no_device_numbers) {
  device_set some{1};
  EXPECT_EQ(message_of<std::invalid_argument>([&] { some.insert(64); }),
            "gpu::device_set: 64 is not a device number; device numbers are 0 to 63");
  EXPECT_THROW((device_set{0, -1}), std::invalid_argument);
  EXPECT_EQ(some, device_set{1});
}

// ---- peers ------------------------------------------------------------------------------------------------

TEST(cuda_peers, commit_grants_access_to_all_devices_with_one_call) {
  fake_device machine{devices(3)};
  gpu::virtual_memory space{{.device = 0, .accessible_from = {2, 0}}, machine};
  EXPECT_EQ(space.accessible_from(), (device_set{0, 2}));
  const byte_range range = space.reserve(1, 10 * unit);
  EXPECT_EQ(calls_of(machine, [&] { EXPECT_TRUE(space.commit(units_of(range, 0, 3))); }),
            joined({{"cuCtxGetDevice", "cuStreamIsCapturing"},
                    times(3, {"cuMemCreate", "cuMemMap"}),
                    {"cuMemSetAccess"}}));
  EXPECT_TRUE(machine.accessible(range.data(), 3 * unit, 0));
  EXPECT_FALSE(machine.accessible(range.data(), 1, 1));
  EXPECT_TRUE(machine.accessible(range.data(), 3 * unit, 2));
}

TEST(cuda_peers, regain_access_after_a_resume_and_a_failed_suspend) {
  fake_device machine{devices(2)};
  gpu::virtual_memory space{{.device = 0, .accessible_from = {1}}, machine};
  const byte_range first = space.reserve(1, 4 * unit), second = space.reserve(1, 4 * unit);
  ASSERT_TRUE(space.commit(first) && space.commit(second));
  space.suspend();
  EXPECT_FALSE(machine.accessible(first.data(), 1, 1));
  space.resume();
  EXPECT_TRUE(machine.accessible(first.data(), first.size, 1));

  machine.fail_in("cuMemUnmap", machine.count("cuMemUnmap") + 1, status::unknown, 2);
  EXPECT_THROW(space.suspend(), cuda_error);
  EXPECT_FALSE(space.is_suspended());
  for (const byte_range each : {first, second})
    for (const gpu::device_number device : {0, 1})
      EXPECT_TRUE(machine.accessible(each.data(), each.size, device)) << device;
}

TEST(cuda_peers, device_without_peer_access_is_rejected_with_a_message) {
  fake_device machine{{.granularity_bytes = unit, .devices = 3, .without_peers = {1}}};
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { const gpu::virtual_memory space{{.device = 0, .accessible_from = {2, 1}}, machine}; }),
            "gpu::virtual_memory: device 1 cannot access the memory of device 0");
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { const gpu::memory_pool pool{{.device = 1, .accessible_from = {2}}, machine}; }),
            "gpu::memory_pool: device 2 cannot access the memory of device 1");
  EXPECT_NO_THROW((gpu::virtual_memory{{.device = 1, .accessible_from = {1}}, machine}));
  EXPECT_THROW((gpu::virtual_memory{{.accessible_from = {7}}, machine}), cuda_error)
      << "there is no such device";
  EXPECT_FALSE(machine.contexts().contains(2)) << "no context of a peer is made";
}

TEST(cuda_peers, peer_work_is_awaited_before_memory_is_reused_or_unmapped) {
  for (const bool ordered : {true, false}) {
    fake_device machine{devices(2)};
    const gpu::stream own = stream_of(machine, 0), peer = stream_of(machine, 1);
    gpu::virtual_memory space{{.device = 0, .stream = own, .accessible_from = {1}}, machine};
    const byte_range range = space.reserve(1, 2 * unit);
    ASSERT_TRUE(space.commit(range));
    write(machine, 1, peer, range);
    if (ordered) space.wait_before_reuse(peer.get());
    const std::string reused = failures_of([&] { write(machine, 0, own, range); });
    const std::string unmapped = failures_of([&] { EXPECT_TRUE(space.decommit(range)); });
    EXPECT_EQ(reused.empty(), ordered) << reused;
    EXPECT_EQ(unmapped.empty(), ordered) << unmapped;
    (void)failures_of([&] { machine.run_all(); });
    machine.recover();
    EXPECT_EQ(machine.current_now(), 0);
  }
}

// ---- the order of streams of two devices ------------------------------------------------------------------

TEST(cuda_peers, streams_of_two_devices_are_ordered_on_any_current_device) {
  fake_device machine{devices(3)};
  const gpu::stream first = stream_of(machine, 0), second = stream_of(machine, 1);
  for (const gpu::device_number current : {0, 1, 2}) {
    const as_current here{machine, current};
    for (auto const& [later, earlier] :
         {std::pair{first.get(), second.get()}, std::pair{second.get(), first.get()}}) {
      const test::noting_work before{machine, earlier};
      ASSERT_EQ(gpu::put_behind(machine, later, earlier), status::success) << current;
      const test::noting_work after{machine, later};
      machine.run(later);
      EXPECT_TRUE(before.has_run && after.has_run);
      EXPECT_LT(before.turn, after.turn);
    }
    EXPECT_EQ(machine.current_now(), current);
  }
  EXPECT_EQ(machine.count("cuEventCreate"), machine.count("cuEventDestroy"));
}

TEST(cuda_peers, failed_ordering_of_two_devices_restores_the_context) {
  for_each_failing_call(20, [](std::size_t n) {
    fake_device machine{devices(2)};
    const gpu::stream own = stream_of(machine, 0), peer = stream_of(machine, 1);
    machine.fail_from = machine.calls + n;
    machine.failure = status::unknown;
    const status result = gpu::put_behind(machine, own, peer);
    machine.fail_from = fake_device::never;
    EXPECT_EQ(machine.current_now(), 0);
    if (result != status::success) EXPECT_EQ(result, status::unknown);
    return result == status::success;
  });
}

TEST(cuda_peers, driver_without_stream_contexts_orders_streams_of_one_device) {
  fake_device machine{devices(2)};
  const gpu::stream own = stream_of(machine, 0), other = stream_of(machine, 0), peer = stream_of(machine, 1);
  machine.fail_in("cuStreamGetCtx", 0, status::not_supported, 2);
  EXPECT_EQ(gpu::put_behind(machine, own, other), status::success);
  EXPECT_EQ(gpu::put_behind(machine, own, peer), status::invalid_handle);
  EXPECT_EQ(machine.count("cuEventCreate"), machine.count("cuEventDestroy"));
}

// ---- pools ------------------------------------------------------------------------------------------------

TEST(cuda_peers, are_the_only_other_devices_with_access_to_a_pools_blocks) {
  fake_device machine{devices(3)};
  gpu::memory_pool pool{{.device = 0, .accessible_from = {1}}, machine};
  const gpu::stream own = stream_of(machine, 0), peer = stream_of(machine, 1);
  const gpu::stream foreign = stream_of(machine, 2);
  gpu::async_resource memory{pool, own, machine};
  void* const block = memory.allocate(unit);
  const byte_range used{reinterpret_cast<std::uintptr_t>(block), unit};
  for (const gpu::device_number device : {1, 2}) {
    gpu::stream const& on = device == 1 ? peer : foreign;
    ASSERT_EQ(gpu::put_behind(machine, on, own), status::success);
    write(machine, device, on, used);
    const std::string found = failures_of([&] { machine.run(on); });
    EXPECT_EQ(found.find("its memory is not there") == std::string::npos, device == 1) << found;
    machine.recover();
    ASSERT_EQ(gpu::put_behind(machine, own, on), status::success);
  }
  memory.deallocate_after(block, unit, alignof(std::max_align_t), peer.get());
  machine.run_all();
}

// ---- export -----------------------------------------------------------------------------------------------

/// A space of 64 units with memory behind the first 40: 17 handles; the last has 8 units.
struct exporting {
  explicit exporting(handle_type as = handle_type::file_descriptor, bool touchable = false)
      : machine{devices(2, touchable)}, own{stream_of(machine, 0)} {
    space = std::make_unique<gpu::virtual_memory>(
        gpu::virtual_memory_options{.device = 0, .stream = own, .exported_as = as}, machine);
    range = space->reserve(1, 64 * unit);
    EXPECT_TRUE(space->commit(units_of(range, 0, 40)));
  }

  fake_device machine;
  gpu::stream own;
  std::unique_ptr<gpu::virtual_memory> space;
  byte_range range;
};

struct cuda_export : ::testing::Test, exporting {};
using cuda_import = cuda_export;

TEST_F(cuda_export, returns_the_handles_of_a_range_and_its_offset) {
  // From inside unit 33 to the first byte of unit 36, in handles of 8 units: 32 to 39.
  const byte_range part{range.begin + 33 * unit + 512, 3 * unit - 511};
  const gpu::exported_memory exported = space->export_memory(part);
  EXPECT_EQ(exported.exported_as, handle_type::file_descriptor);
  EXPECT_EQ(exported.offset, unit + 512);
  EXPECT_EQ(exported.size, part.size);
  ASSERT_EQ(exported.handles.size(), 1u);
  EXPECT_EQ(exported.handles[0].offset, 0u);
  EXPECT_EQ(exported.handles[0].size, 8 * unit);
  EXPECT_GE(exported.handles[0].descriptor.get(), 0);

  const gpu::exported_memory all = space->export_memory(units_of(range, 0, 40));
  EXPECT_EQ(all.offset, 0u);
  ASSERT_EQ(all.handles.size(), 17u);
  std::size_t next = 0;
  for (gpu::exported_handle const& each : all.handles) {
    EXPECT_EQ(each.offset, next);
    next += each.size;
  }
  EXPECT_EQ(next, 40 * unit);
  EXPECT_TRUE(machine.accessible(range.data(), 40 * unit)) << "the memory stays mapped here";
}

TEST_F(cuda_export, opens_no_file_for_fabric_handles) {
  exporting from{handle_type::fabric};
  const int before = open_files();
  const gpu::exported_memory exported = from.space->export_memory(units_of(from.range, 0, 1));
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(exported.handles.at(0).descriptor.get(), -1);
  EXPECT_NE(exported.handles.at(0).fabric, (std::array<std::byte, 64>{}));
}

TEST_F(cuda_export, throws_logic_error_without_a_call_for_unexportable_memory) {
  exporting from{handle_type::none};
  EXPECT_EQ(calls_of(from.machine,
                     [&] {
                       EXPECT_EQ(message_of<std::logic_error>(
                                     [&] { (void)from.space->export_memory(units_of(from.range, 0, 1)); }),
                                 "gpu::virtual_memory: export_memory of memory that was created without "
                                 "the option exported_as");
                     }),
            call_names{});
}

TEST_F(cuda_export, rejects_a_range_that_is_not_fully_committed) {
  ASSERT_TRUE(space->decommit(units_of(range, 34, 6)));  // of a handle that stays held
  const byte_range inside{range.begin + 10, 10};
  for (const byte_range part :
       {units_of(range, 33, 2), units_of(range, 39, 2), units_of(range, 63, 2), byte_range{inside.begin, 0},
        byte_range{16, 16}, byte_range{inside.begin, SIZE_MAX}}) {
    EXPECT_EQ(message_of<std::invalid_argument>([&] { (void)space->export_memory(part); }),
              "gpu::virtual_memory: export_memory of " + std::to_string(part.size) +
                  " bytes that are not all committed");
  }
  EXPECT_EQ(space->export_memory(inside).offset, 10u);
  EXPECT_EQ(space->export_memory(units_of(range, 32, 2)).handles.at(0).size, 8 * unit);

  space->suspend();
  EXPECT_EQ(message_of<std::logic_error>([&] { (void)space->export_memory(inside); }),
            "gpu::virtual_memory: export_memory while it is suspended");
}

TEST_F(cuda_export, closes_all_descriptors_after_a_failure) {
  const int before = open_files();
  for_each_failing_call(40, [&](std::size_t n) {
    machine.fail_from = machine.calls + n;
    machine.failure = status::not_permitted;
    try {
      const gpu::exported_memory exported = space->export_memory(units_of(range, 0, 40));
      EXPECT_EQ(open_files(), before + static_cast<int>(exported.handles.size()));
      return true;
    } catch (cuda_error const& error) {
      EXPECT_EQ(error.status(), status::not_permitted);
      EXPECT_EQ(open_files(), before);
      return false;
    }
  });
  machine.fail_from = fake_device::never;
  EXPECT_EQ(open_files(), before);
}

TEST_F(cuda_export, leaves_a_capture_valid) {
  const gpu::stream elsewhere = stream_of(machine, 0);
  for (const gpu::stream_handle capturing : {own.get(), elsewhere.get()}) {
    const test::empty_capture graph{machine, capturing};
    EXPECT_EQ(space->export_memory(units_of(range, 0, 2)).handles.size(), 2u);
  }
}

// ---- import -----------------------------------------------------------------------------------------------

static_assert(std::is_nothrow_move_constructible_v<gpu::imported_memory> &&
              std::is_nothrow_move_assignable_v<gpu::imported_memory> &&
              !std::is_copy_constructible_v<gpu::imported_memory>);

TEST_F(cuda_import, maps_the_same_memory_at_other_addresses) {
  for (const handle_type as : {handle_type::file_descriptor, handle_type::fabric}) {
    exporting from{as, true};
    const byte_range part{from.range.begin + 33 * unit + 512, 3 * unit};
    const gpu::imported_memory shared{from.space->export_memory(part), {}, from.machine};
    ASSERT_EQ(shared.range().size, part.size);
    ASSERT_NE(shared.range().begin, part.begin);
    EXPECT_EQ(shared.mapped_bytes(), 8 * unit);
    auto* const here = static_cast<unsigned char volatile*>(part.data());
    auto* const there = static_cast<unsigned char volatile*>(shared.range().data());
    for (const std::size_t at : {std::size_t{0}, unit, part.size - 1}) {
      here[at] = static_cast<unsigned char>(at + 1);
      EXPECT_EQ(there[at], static_cast<unsigned char>(at + 1));
      there[at] = 77;
      EXPECT_EQ(here[at], 77);
    }
    EXPECT_EQ(from.machine.physical_bytes(), 40 * unit) << "the importer has no own memory";
  }
}

TEST_F(cuda_import, maps_each_handle_with_three_calls_and_grants_access_once) {
  const gpu::exported_memory exported = space->export_memory(units_of(range, 0, 3));
  const call_names begun{"cuCtxGetDevice", "cuStreamIsCapturing"};
  EXPECT_EQ(calls_of(machine, [&] { const gpu::imported_memory shared(exported, {.device = 0}, machine); }),
            joined({begun,
                    {"cuMemAddressReserve"},
                    times(3, {"cuMemImportFromShareableHandle", "cuMemMap", "cuMemRelease"}),
                    {"cuMemSetAccess"},
                    begun,
                    {"cuStreamSynchronize", "cuMemUnmap", "cuMemAddressFree"}}));
}

TEST_F(cuda_import, keeps_the_memory_after_the_exporter_frees_it) {
  exporting from{handle_type::file_descriptor, true};
  const byte_range part = units_of(from.range, 32, 8);
  const gpu::imported_memory shared{from.space->export_memory(part), {}, from.machine};
  auto* const there = static_cast<unsigned char volatile*>(shared.range().data());
  there[5] = 55;
  ASSERT_TRUE(from.space->decommit(part));
  EXPECT_EQ(from.machine.physical_bytes(), 40 * unit);
  EXPECT_EQ(there[5], 55);
  ASSERT_TRUE(from.space->commit(part));
  EXPECT_EQ(from.machine.physical_bytes(), 48 * unit) << "the part has new memory";
  static_cast<unsigned char volatile*>(part.data())[5] = 1;
  EXPECT_EQ(there[5], 55);
  from.space.reset();
  EXPECT_EQ(from.machine.physical_bytes(), 8 * unit);
  EXPECT_EQ(there[5], 55);
}

TEST_F(cuda_import, is_accessible_only_from_the_devices_of_the_options) {
  const gpu::exported_memory exported = space->export_memory(units_of(range, 0, 2));
  const gpu::imported_memory by_own{exported, {.device = 0}, machine},
      by_peer{exported, {.device = 1}, machine},
      by_both{exported, {.device = 1, .accessible_from = {0}}, machine};
  const auto can = [&](gpu::imported_memory const& memory, gpu::device_number device) {
    return machine.accessible(memory.range().data(), memory.range().size, device);
  };
  EXPECT_TRUE(can(by_own, 0) && !can(by_own, 1));
  EXPECT_TRUE(!can(by_peer, 0) && can(by_peer, 1));
  EXPECT_TRUE(can(by_both, 0) && can(by_both, 1));
}

TEST_F(cuda_import, leaves_no_mapping_after_a_failure) {
  const gpu::exported_memory exported = space->export_memory(units_of(range, 0, 6));
  const std::size_t reserved = machine.reserved_bytes(), mapped = machine.mapped_bytes();
  const int files = open_files();
  for_each_failing_call(60, [&](std::size_t n) {
    machine.fail_from = machine.calls + n;
    bool made = false;
    try {
      const gpu::imported_memory shared{exported, {}, machine};
      machine.fail_from = fake_device::never;
      made = true;
    } catch (out_of_memory const&) {
    } catch (cuda_error const&) {
    }
    machine.fail_from = fake_device::never;
    EXPECT_EQ(machine.reserved_bytes(), reserved);
    EXPECT_EQ(machine.mapped_bytes(), mapped);
    EXPECT_EQ(machine.physical_bytes(), 40 * unit);
    EXPECT_EQ(open_files(), files);
    return made;
  });
}

TEST_F(cuda_import, unmaps_mappings_one_by_one_if_unmapping_all_at_once_fails) {
  const gpu::exported_memory exported = space->export_memory(units_of(range, 0, 3));
  machine.fail_next("cuMemUnmap", status::invalid_value);
  {
    const gpu::imported_memory shared{exported, {}, machine};
  }
  EXPECT_EQ(machine.count("cuMemUnmap"), 1u + 3u);
  EXPECT_EQ(machine.mapped_bytes(), 40 * unit);
}

TEST_F(cuda_import, rejects_inconsistent_export_descriptions_without_a_call) {
  const gpu::exported_memory good = space->export_memory(units_of(range, 0, 2));
  using change = std::function<void(gpu::exported_memory&)>;
  for (auto const& [message, spoil] : std::vector<std::pair<std::string, change>>{
           {"the memory was exported neither as file descriptors nor as fabric",
            [](auto& of) { of.exported_as = handle_type::none; }},
           {"the handles are not contiguous", [](auto& of) { of.handles[1].offset += unit; }},
           {"the handles are not contiguous", [](auto& of) { of.handles[1].size = 0; }},
           {"the handles are not contiguous", [](auto& of) { of.handles[1].size = SIZE_MAX; }},
           {"the exported range lies outside its handles", [](auto& of) { of.handles.clear(); }},
           {"the exported range lies outside its handles", [](auto& of) { of.size = 0; }},
           {"the exported range lies outside its handles", [](auto& of) { of.offset = SIZE_MAX; }},
           {"the exported range lies outside its handles", [](auto& of) { of.size += 1; }}}) {
    gpu::exported_memory received = space->export_memory(units_of(range, 0, 2));
    spoil(received);
    EXPECT_EQ(calls_of(machine,
                       [&] {
                         EXPECT_EQ(message_of<std::invalid_argument>(
                                       [&] { const gpu::imported_memory shared(received, {}, machine); }),
                                   "gpu::imported_memory: " + message);
                       }),
              call_names{});
  }
  EXPECT_THROW((gpu::imported_memory{good, {.stream = gpu::per_thread_stream}, machine}),
               std::invalid_argument);
}

TEST_F(cuda_import, throws_cuda_error_for_a_foreign_file_descriptor) {
  gpu::exported_memory received = space->export_memory(units_of(range, 0, 1));
  received.handles[0].descriptor = file_descriptor{::open("/dev/null", O_RDWR)};
  EXPECT_THROW((gpu::imported_memory{received, {}, machine}), cuda_error);
  received.handles[0].descriptor = file_descriptor{};
  EXPECT_THROW((gpu::imported_memory{received, {}, machine}), cuda_error);
}

TEST_F(cuda_import, throws_logic_error_on_a_capturing_stream_and_keeps_the_capture) {
  const gpu::exported_memory exported = space->export_memory(units_of(range, 0, 1));
  const test::empty_capture graph{machine, own};
  EXPECT_EQ(message_of<std::logic_error>(
                [&] { const gpu::imported_memory shared(exported, {.stream = own}, machine); }),
            "gpu::imported_memory: import while its stream is capturing");
  EXPECT_NO_THROW((gpu::imported_memory{exported, {}, machine})) << "for another stream";
}

TEST_F(cuda_import, stays_mapped_and_reports_if_destroyed_during_a_capture) {
  test::violation_recorder violations;
  std::optional<gpu::imported_memory> shared{std::in_place, space->export_memory(units_of(range, 0, 1)),
                                             gpu::imported_memory_options{.stream = own}, machine};
  const byte_range mapped = shared->range();
  {
    const empty_capture graph{machine, own};
    shared.reset();
  }
  EXPECT_EQ(violations.count(violation_kind::open_capture), 1u);
  EXPECT_TRUE(machine.accessible(mapped.data(), mapped.size));
  EXPECT_EQ(machine.unmap(mapped), status::success);
  EXPECT_EQ(machine.free_reservation(mapped), status::success);
}

TEST_F(cuda_import, warns_and_leaks_a_mapping_that_cannot_be_unmapped) {
  test::warning_recorder warnings;
  byte_range mapped;
  {
    const gpu::imported_memory shared{space->export_memory(units_of(range, 0, 1)), {}, machine};
    mapped = shared.range();
    machine.fail_in("cuMemUnmap", 0, status::unknown, 2);
  }
  EXPECT_EQ(warnings.count(warning_kind::refused_return), 1u);
  EXPECT_EQ(machine.unmap(mapped), status::success);
  EXPECT_EQ(machine.free_reservation(mapped), status::success);
}

TEST_F(cuda_import, move_transfers_the_mapping_and_assignment_frees_the_old_mapping) {
  gpu::imported_memory first{space->export_memory(units_of(range, 0, 1)), {}, machine};
  const byte_range there = first.range();
  gpu::imported_memory second{std::move(first)};
  EXPECT_TRUE(first.range().empty());  // NOLINT(bugprone-use-after-move)
  gpu::imported_memory third{space->export_memory(units_of(range, 1, 2)), {}, machine};
  third = std::move(second);
  EXPECT_EQ(third.range(), there);
  EXPECT_EQ(machine.mapped_bytes(), 41 * unit);
}

}  // namespace
}  // namespace tidemark::test
