// SPDX-License-Identifier: Apache-2.0
// End of a shared object. The loader of an ELF system calls functions in this order:
//   dlclose:             begin_unload, destructors of static objects (exit_watch), end_unload
//   end of the process:  destructors of static objects (exit_watch), begin_unload, end_unload
// exit_watch tells the two cases apart.
#include <tidemark/core/detail/until_unload.hpp>

#include <dlfcn.h>
#include <link.h>

#include <mutex>

#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/fork_participant.hpp>

// Weak: absent in statically linked programs, which unload nothing.
#pragma weak dladdr1
#pragma weak dlopen

namespace tidemark::detail {

/// Participants, newest first. Destroyed only by `end_unload`.
struct unload_list {
  fork_safe<brief_lock> lock;
  unload_participant* newest = nullptr;

  static unload_list& instance() {
    static auto& made = *new unload_list;
    return made;
  }

  void add(unload_participant& one) noexcept {
    const std::scoped_lock guard{lock};
    one.older_ = newest;
    if (newest != nullptr) newest->newer_ = &one;
    newest = &one;
  }
  void remove(unload_participant& one) noexcept {
    const std::scoped_lock guard{lock};
    if (newest != &one && one.newer_ == nullptr) return;  // not in the list
    (one.newer_ != nullptr ? one.newer_->older_ : newest) = one.older_;
    if (one.older_ != nullptr) one.older_->newer_ = one.newer_;
    one.newer_ = one.older_ = nullptr;
  }

  // @pre no other thread runs code of this shared object. Participants that are detached or destroyed may
  // make new participants.
  void end() noexcept {
    for (unload_participant* one = newest; one != nullptr; one = one->older_) one->stop_threads();
    for (unload_participant* one = newest; one != nullptr; one = one->older_) one->detach();
    while (newest != nullptr) {
      unload_participant& one = *newest;
      remove(one);
      one.destroy();
    }
  }
};

namespace {

constinit bool unload_has_begun = false;
constinit bool process_has_ended = false;
constinit bool has_participants = false;

// Runs at the end of the process. A static object of the program may still call dlclose, which must not unmap
// code that other threads run. The shared object is therefore marked as never unloaded. The program itself
// has no name.
void pin_shared_object() noexcept {
  Dl_info own{};
  link_map* object = nullptr;
  if (&dladdr1 == nullptr || &dlopen == nullptr) return;
  if (::dladdr1(&unload_has_begun, &own, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) return;
  if (object->l_name[0] != '\0') (void)::dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

struct exit_watch {
  ~exit_watch() {
    process_has_ended = !unload_has_begun;
    if (process_has_ended) pin_shared_object();
  }
};

[[gnu::destructor]] void begin_unload() noexcept { unload_has_begun = true; }

// The last function of the object that the loader calls: numbered functions come after all others, and the
// least number is last.
[[gnu::destructor(101)]] void end_unload() noexcept {
  if (process_has_ended || !has_participants) return;
  unload_list::instance().end();
  delete &unload_list::instance();
}

}  // namespace

void unload_participant::join() {
  static const exit_watch watch;
  has_participants = true;
  unload_list::instance().add(*this);
}

void unload_participant::deregister() noexcept { unload_list::instance().remove(*this); }

}  // namespace tidemark::detail
