// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/thread_specific.hpp>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/until_unload.hpp>

namespace tidemark::detail {

/// The objects of all threads, and the key whose destructor each thread calls at its end.
///
/// Invariant: an entry's objects belong to the thread that exists and bears its name, if the value of its key
/// is not null; otherwise to one that has ended, whose name it bears again. Any thread.
class thread_registry {
 public:
  /// @throws std::bad_alloc if the process has no keys left.
  thread_registry() {
    if (pthread_key_create(&key_, end_thread) != 0) throw std::bad_alloc{};
    const std::scoped_lock lock{mutex_};
    mutex_.adapt_with(*this);
  }
  static thread_registry& instance() {
    static auto& made = *new until_unload<thread_registry>;
    return made.value;
  }

  // A destructor of another key may come here in the last round of the thread's end, when none of this key
  // comes any more. The next thread that bears this thread's name destroys the objects.
  void add(std::unique_ptr<thread_object> object) {
    const bool is_known = is_detached_ || pthread_getspecific(key_) != nullptr;
    std::unique_ptr<thread_object> left;  // destroyed without the lock
    const std::scoped_lock lock{mutex_};
    entry& own = threads_[pthread_self()];
    if (!is_known) {
      if (pthread_setspecific(key_, this) != 0) throw std::bad_alloc{};
      if (std::exchange(own.is_lost, false)) (void)own.newest.release();
      left = std::move(own.newest);
    }
    object->older_ = std::move(own.newest);
    own.newest = std::move(object);
  }

  // Then the objects of all other threads are destroyed, which may make objects for this thread.
  void detach() noexcept {
    is_detached_ = true;  // first: the program may make a new key of the same number
    pthread_key_delete(key_);
    wait_for_ending_threads();
    for (auto object = take_any(); object != nullptr; object = take_any()) object.reset();
  }

  // Other threads may have been changing their objects, so that these are never looked at. Kept, as they own
  // memory.
  void adapt_to_child() noexcept {
    for (auto& [thread, each] : threads_)
      each.is_lost = each.is_lost || !pthread_equal(thread, pthread_self());
  }

 private:
  struct entry {
    std::unique_ptr<thread_object> newest;
    bool is_lost = false;  // its thread did not exist in this process, a forked child
    ~entry() {
      if (is_lost) (void)newest.release();
    }
  };
  using thread_map = std::unordered_map<pthread_t, entry>;

  static void end_thread(void* registry) {
    auto& self = *static_cast<thread_registry*>(registry);
    self.ending_.fetch_add(1, std::memory_order_acquire);
    self.set_known(registry);  // the thread is known until all its objects are destroyed
    for (auto object = self.take_own(); object != nullptr; object = self.take_own()) object.reset();
    self.set_known(nullptr);
    self.ending_.fetch_sub(1, std::memory_order_release);
  }

  void set_known(void const* value) const noexcept {
    if (!is_detached_) pthread_setspecific(key_, value);
  }
  // For threads that the threads library lets call `end_thread`. It tells of no thread that is about to call
  // it, or about to return to the library: these have some instructions left, and a moment to execute them.
  void wait_for_ending_threads() const noexcept {
    constexpr std::chrono::microseconds moment{500};
    do std::this_thread::sleep_for(moment);
    while (ending_.load(std::memory_order_acquire) != 0);
    std::this_thread::sleep_for(moment);
  }
  std::unique_ptr<thread_object> take_own() noexcept {
    const std::scoped_lock lock{mutex_};
    return take(threads_.find(pthread_self()));
  }
  std::unique_ptr<thread_object> take_any() noexcept {
    const std::scoped_lock lock{mutex_};
    auto each = threads_.begin();
    while (each != threads_.end() && each->second.is_lost) ++each;
    return take(each);
  }
  // The newest object of a thread, which is forgotten if it has none.
  std::unique_ptr<thread_object> take(thread_map::iterator of) noexcept {
    if (of == threads_.end()) return nullptr;
    std::unique_ptr<thread_object> newest = std::move(of->second.newest);
    if (newest != nullptr) of->second.newest = std::move(newest->older_);
    if (of->second.newest == nullptr) threads_.erase(of);
    return newest;
  }

  pthread_key_t key_{};
  std::atomic<bool> is_detached_{false};
  std::atomic<int> ending_{0};  // threads that destroy their objects at this moment
  fork_safe<> mutex_;           // for the next
  thread_map threads_;
};

void give_to_this_thread(std::unique_ptr<thread_object> object) {
  thread_registry::instance().add(std::move(object));
}

}  // namespace tidemark::detail
