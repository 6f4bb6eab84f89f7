// SPDX-License-Identifier: Apache-2.0
// The streams and events of the fake device: queues of work that run on request. Requires the lock of
// fake_device.hpp, which is released while a host function runs.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/cuda.hpp>

#include "fake_accesses.hpp"

namespace tidemark::test {

struct fake_capture;
struct fake_stream;

/// A handle of any kind: an address that nothing has, and that no other handle had before.
inline std::uintptr_t next_fake_handle() {
  static std::atomic<std::uintptr_t> last{0xFA4E'0000};
  return last += 16;
}

/// A place in a stream's work: one record of an event.
struct fake_moment {
  std::shared_ptr<fake_stream> on;
  bool reached = false;
  fake_clock known = {};
};

/// Something that is queued on a stream.
struct fake_work {
  enum class kind { host_function, kernel, record, wait, other };

  kind what = kind::other;
  void (*function)(void*) = nullptr;               ///< of a host function
  void* argument = nullptr;                        ///< of a host function
  std::shared_ptr<fake_kernel const> kernel = {};  ///< of that kind
  std::shared_ptr<fake_moment> moment = {};        ///< that a record reaches, or a wait waits for
  std::shared_ptr<bool> done = {};                 ///< of another kind: set when it has run
  std::shared_ptr<void const> keeps = {};          ///< lives until the work has run
};

/// Places in a capture after which a stream's next node comes.
using fake_places = std::set<std::size_t>;

struct fake_stream {
  /// The relation to the legacy default stream of its device: identical, mutually waiting, or independent.
  enum class sort { legacy, blocking, non_blocking };

  std::uintptr_t identity = next_fake_handle();
  gpu::stream_handle handle = nullptr;  ///< null: a default stream
  sort is = sort::non_blocking;
  fake_clock known = {};  ///< to the work that is put on it next
  gpu::device_number device = 0;
  std::deque<fake_work> queue;
  bool busy = false;  ///< a host function of it runs, in some thread
  std::shared_ptr<fake_capture> capture;
  fake_places behind;  ///< in that capture
};

struct fake_event {
  gpu::device_number device = 0;
  std::shared_ptr<fake_moment> last = {};      ///< null: recorded nowhere, or in a capture
  std::shared_ptr<fake_capture> capture = {};  ///< that it was last recorded in
  fake_places behind = {};                     ///< in that capture
};

/// The queues. Work that waits for an event first runs the event's stream up to the record. A record is
/// queued before all work that waits for it, so no wait is endless.
class fake_streams {
 public:
  using lock = std::unique_lock<std::mutex>;

  explicit fake_streams(gpu::device_number devices) {
    for (gpu::device_number device = 0; device < devices; ++device) {
      defaults_.push_back(std::make_shared<fake_stream>());
      defaults_.back()->device = device;
      defaults_.back()->is = fake_stream::sort::legacy;
    }
  }
  fake_streams(fake_streams const&) = delete;
  fake_streams& operator=(fake_streams const&) = delete;
  ~fake_streams() {
    EXPECT_TRUE(streams_.empty()) << streams_.size() << " streams were not destroyed";
    EXPECT_TRUE(events_.empty()) << events_.size() << " events were not destroyed";
    std::size_t functions = 0;
    for (auto const& each : all()) {
      for (fake_work const& work : each->queue) functions += work.function != nullptr ? 1 : 0;
      each->queue.clear();  // its works hold streams
    }
    EXPECT_EQ(functions, 0u) << "functions of the host were queued and have not run";
  }

  gpu::stream_handle create_stream(gpu::device_number device, bool is_blocking = false) {
    auto made = std::make_shared<fake_stream>();
    made->handle = reinterpret_cast<gpu::stream_handle>(next_fake_handle());
    made->device = device;
    if (is_blocking) made->is = fake_stream::sort::blocking;
    streams_.emplace(made->handle, made);
    return made->handle;
  }
  /// Returns the stream, or null. A null handle is the legacy default stream of the device, like 0x1; 0x2 is
  /// the calling thread's.
  std::shared_ptr<fake_stream> stream(gpu::stream_handle handle, gpu::device_number device) {
    if (gpu::is_same_stream(handle, nullptr)) return defaults_.at(static_cast<std::size_t>(device));
    if (handle == gpu::per_thread_stream) {
      std::shared_ptr<fake_stream>& own = of_threads_[{std::this_thread::get_id(), device}];
      if (own == nullptr) {
        own = std::make_shared<fake_stream>();
        own->handle = handle;
        own->device = device;
        own->is = fake_stream::sort::blocking;
      }
      return own;
    }
    const auto found = streams_.find(handle);
    return found == streams_.end() ? nullptr : found->second;
  }
  /// Its work goes on without it.
  void destroy_stream(gpu::stream_handle handle) {
    const auto found = streams_.find(handle);
    destroyed_.push_back(found->second);
    streams_.erase(found);
  }

  gpu::event_handle create_event(gpu::device_number device) {
    auto* const handle = reinterpret_cast<gpu::event_handle>(next_fake_handle());
    events_.emplace(handle, fake_event{.device = device});
    return handle;
  }
  /// Returns the event, or null.
  fake_event* event(gpu::event_handle handle) {
    const auto found = events_.find(handle);
    return found == events_.end() ? nullptr : &found->second;
  }
  bool destroy_event(gpu::event_handle handle) { return events_.erase(handle) == 1; }

  /// Called before the calling thread puts work on the stream. The work comes after the knowledge of the
  /// thread, and after the earlier work of the legacy stream, or of all blocking streams.
  void enqueue(fake_stream& on) {
    on.known.join(of_thread());
    if (on.is != fake_stream::sort::non_blocking) {
      for (auto const& other : all()) {
        const bool is_waited_for =
            other.get() != &on && other->device == on.device &&
            other->is != fake_stream::sort::non_blocking &&
            (on.is == fake_stream::sort::legacy || other->is == fake_stream::sort::legacy);
        if (!is_waited_for) continue;
        if (!other->queue.empty()) wait(on, record(other));
        on.known.join(other->known);
      }
    }
    on.known.tick(on.identity);
  }
  /// Returns the knowledge of the calling thread.
  fake_clock& of_thread() {
    auto& [actor, known] = threads_[std::this_thread::get_id()];
    if (actor == 0) {
      actor = next_fake_handle();
      known = met_;
    }
    known.tick(actor);
    return known;
  }
  /// Every thread now knows the work of all threads: they have met, by a barrier or a join.
  void threads_meet() {
    fake_clock joined_clock;
    for (auto const& [thread, each] : threads_) joined_clock.join(each.second);
    for (auto& [thread, each] : threads_) each.second.join(joined_clock);
    met_ = joined_clock;
  }

  /// A record on the stream.
  static std::shared_ptr<fake_moment> record(std::shared_ptr<fake_stream> const& on) {
    auto moment = std::make_shared<fake_moment>(fake_moment{.on = on, .reached = false, .known = on->known});
    on->queue.push_back({.what = fake_work::kind::record, .moment = moment});
    return moment;
  }
  static void wait(fake_stream& on, std::shared_ptr<fake_moment> moment) {
    on.known.join(moment->known);
    on.queue.push_back({.what = fake_work::kind::wait, .moment = std::move(moment)});
  }

  /// Runs the stream's work and the work that it waits for: all of it, or up to a moment.
  void run(lock& held, std::shared_ptr<fake_stream> const& on, fake_moment const* until = nullptr) {
    while (!on->queue.empty() && (until == nullptr || !until->reached)) {
      if (on->busy) {  // in another thread
        changed_.wait(held);
        continue;
      }
      fake_work const& next = on->queue.front();
      if (next.what == fake_work::kind::wait && !next.moment->reached) {
        std::shared_ptr<fake_moment> const moment = next.moment;
        run(held, moment->on, moment.get());
        continue;
      }
      if (next.what == fake_work::kind::record) next.moment->reached = true;
      if (next.done != nullptr) *next.done = true;
      if (next.what == fake_work::kind::kernel) run_kernel(*next.kernel, on->device);
      if (next.what == fake_work::kind::host_function) call(held, *on, next);
      on->queue.pop_front();
    }
  }
  void run(lock& held, std::shared_ptr<fake_moment> const& until) { run(held, until->on, until.get()); }
  /// Runs the work of all streams of a device, or of all devices if `device` is negative.
  void run_all(lock& held, gpu::device_number device = -1) {
    for (auto const& each : all())
      if (device < 0 || each->device == device) run(held, each);
  }
  /// The calling thread now knows the work of all streams of a device. @pre it has run
  void join_all(gpu::device_number device) {
    for (auto const& each : all())
      if (each->device == device) of_thread().join(each->known);
    std::erase_if(destroyed_, [&](auto const& each) { return each->device == device; });
  }

  /// All streams, also destroyed ones for whose work no thread has waited.
  [[nodiscard]] std::vector<std::shared_ptr<fake_stream>> all() const {
    std::vector<std::shared_ptr<fake_stream>> found{defaults_};
    for (auto const& [thread, each] : of_threads_) found.push_back(each);
    for (auto const& [handle, each] : streams_) found.push_back(each);
    found.insert(found.end(), destroyed_.begin(), destroyed_.end());
    return found;
  }

  /// Called when a kernel runs.
  std::function<void(fake_kernel const&, gpu::device_number)> run_kernel;

  /// True while this thread is inside a host function, which must not call the driver.
  static bool& inside_host_function() {
    thread_local bool inside = false;
    return inside;
  }

 private:
  // The work stays in front meanwhile, so that a waiting thread does not take it for done.
  void call(lock& held, fake_stream& on, fake_work const& work) {
    on.busy = true;
    held.unlock();
    inside_host_function() = true;
    work.function(work.argument);
    inside_host_function() = false;
    held.lock();
    on.busy = false;
    changed_.notify_all();
  }

  using thread_on_device = std::pair<std::thread::id, gpu::device_number>;

  std::condition_variable changed_;
  std::map<std::thread::id, std::pair<std::uintptr_t, fake_clock>> threads_;
  fake_clock met_;                                                       // common knowledge of met threads
  std::map<thread_on_device, std::shared_ptr<fake_stream>> of_threads_;  // the default streams of threads
  std::vector<std::shared_ptr<fake_stream>> defaults_;                   // of each device
  std::map<gpu::stream_handle, std::shared_ptr<fake_stream>> streams_;
  std::vector<std::shared_ptr<fake_stream>> destroyed_;  // until a thread has waited for all work
  std::map<gpu::event_handle, fake_event> events_;
};

}  // namespace tidemark::test
