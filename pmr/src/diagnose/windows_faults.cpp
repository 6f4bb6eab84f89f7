// SPDX-License-Identifier: Apache-2.0
// Fault handler for Windows. It takes no lock and allocates nothing, as on other systems.
#if defined(_WIN32)

#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <tidemark/diagnose/use_after_rewind.hpp>

#include "trap_log.hpp"

namespace tidemark::detail {
namespace {

// Continues with the program's own handlers; then the system ends the process.
LONG CALLBACK on_fault(EXCEPTION_POINTERS* fault) noexcept {
  EXCEPTION_RECORD const& record = *fault->ExceptionRecord;
  if (record.ExceptionCode == EXCEPTION_ACCESS_VIOLATION && record.NumberParameters >= 2)
    report_use_after_rewind(reinterpret_cast<void const*>(record.ExceptionInformation[1]),
                            record.ExceptionAddress);
  return EXCEPTION_CONTINUE_SEARCH;
}

}  // namespace

void handle_faults() {
  [[maybe_unused]] static void* const once = ::AddVectoredExceptionHandler(1, on_fault);
}

}  // namespace tidemark::detail

#endif
