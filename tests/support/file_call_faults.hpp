// SPDX-License-Identifier: Apache-2.0
// Counted system calls of shared memory: the n-th call fails, or ends the process.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include <tidemark/process/detail/file_calls.hpp>

#include "recording_supply.hpp"

namespace tidemark::test {

/// While it exists, the newest one sees each call.
class file_call_faults : public supply {
 public:
  file_call_faults() : before_{std::exchange(newest_, this)} { detail::set_file_call_hook(&on_call); }
  file_call_faults(file_call_faults const&) = delete;
  file_call_faults& operator=(file_call_faults const&) = delete;
  ~file_call_faults() {
    newest_ = before_;
    if (before_ == nullptr) detail::set_file_call_hook(nullptr);
  }

  int error = ENOMEM;       ///< of calls that fail
  bool kills = false;       ///< end the process instead
  std::string only;         ///< if not empty: only calls of that name count
  std::string ignored;      ///< calls of that name do not count
  std::string last_failed;  ///< name of the last call that failed

 private:
  static int on_call(char const* call) noexcept {
    file_call_faults& self = *newest_;
    if ((!self.only.empty() && self.only != call) || self.ignored == call || !self.this_one_fails()) return 0;
    if (self.kills) ::kill(::getpid(), SIGKILL);
    self.last_failed = call;
    return self.error;
  }

  static inline file_call_faults* newest_ = nullptr;
  file_call_faults* before_;
};

}  // namespace tidemark::test
