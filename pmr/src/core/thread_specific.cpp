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

/// The objects of all threads, and the key whose destructor runs at each thread's end.
///
/// Invariant: if the value of its key is not null, an entry's objects belong to the live thread with its id;
/// otherwise to an ended thread with that id. Thread-safe.
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

  // A destructor of another key may call this in the last round of the thread's end, after this key's last
  // call. The next thread with the same id then destroys the objects.
  void add(std::unique_ptr<thread_object> object) {
    const bool is_known = is_detached_ || pthread_getspecific(key_) != nullptr;
    std::unique_ptr<thread_object> left;  // destroyed after the unlock
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

  // Destroys the objects of all other threads, which may make objects for this thread.
  void detach() noexcept {
    is_detached_ = true;  // first: the program may make a new key with the same number
    (void)pthread_key_delete(key_);
    wait_for_ending_threads();
    for (auto object = pop_any(); object != nullptr; object = pop_any()) object.reset();
  }

  // Marks the objects of other threads as lost, because those threads may have been changing them. They are
  // kept, because they own memory.
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
    self.set_known(registry);  // the thread stays known until all its objects are destroyed
    for (auto object = self.pop_own(); object != nullptr; object = self.pop_own()) object.reset();
    self.set_known(nullptr);
    self.ending_.fetch_sub(1, std::memory_order_release);
  }

  void set_known(void const* value) const noexcept {
    if (!is_detached_) pthread_setspecific(key_, value);
  }
  // Waits for threads inside `end_thread`. The threads library does not reveal threads that are about to call
  // it or to return from it. These have a few instructions left, and get a moment to execute them.
  void wait_for_ending_threads() const noexcept {
    constexpr std::chrono::microseconds moment{500};
    do std::this_thread::sleep_for(moment);
    while (ending_.load(std::memory_order_acquire) != 0);
    std::this_thread::sleep_for(moment);
  }
  std::unique_ptr<thread_object> pop_own() noexcept {
    const std::scoped_lock lock{mutex_};
    return pop_newest(threads_.find(pthread_self()));
  }
  std::unique_ptr<thread_object> pop_any() noexcept {
    const std::scoped_lock lock{mutex_};
    auto each = threads_.begin();
    while (each != threads_.end() && each->second.is_lost) ++each;
    return pop_newest(each);
  }
  // Removes the newest object of a thread, and forgets a thread without objects.
  std::unique_ptr<thread_object> pop_newest(thread_map::iterator of) noexcept {
    if (of == threads_.end()) return nullptr;
    std::unique_ptr<thread_object> newest = std::move(of->second.newest);
    if (newest != nullptr) of->second.newest = std::move(newest->older_);
    if (of->second.newest == nullptr) threads_.erase(of);
    return newest;
  }

  pthread_key_t key_{};
  std::atomic<bool> is_detached_{false};
  std::atomic<int> ending_{0};  // threads that are destroying their objects
  fork_safe<> mutex_;           // guards threads_
  thread_map threads_;
};

void transfer_to_this_thread(std::unique_ptr<thread_object> object) {
  thread_registry::instance().add(std::move(object));
}

}  // namespace tidemark::detail
