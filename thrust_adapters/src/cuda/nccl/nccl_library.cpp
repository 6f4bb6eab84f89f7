// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>

#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/cuda/nccl/nccl.hpp>

namespace tidemark::gpu {
namespace {

template <class Function>
void find(void* library, char const* name, Function*& function) noexcept {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace

nccl_library::nccl_library(char const* file) noexcept {
  void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);  // never closed: its texts are in use
  if (library == nullptr) {
    std::snprintf(why_not_, sizeof why_not_, "%s cannot be loaded: %s", file, ::dlerror());
    return;
  }
  find(library, "ncclMemAlloc", functions_.mem_alloc);
  find(library, "ncclMemFree", functions_.mem_free);
  find(library, "ncclCommCuDevice", functions_.comm_cu_device);
  find(library, "ncclCommGetAsyncError", functions_.comm_get_async_error);
  find(library, "ncclCommRegister", functions_.comm_register);
  find(library, "ncclCommDeregister", functions_.comm_deregister);
  find(library, "ncclCommWindowRegister", functions_.comm_window_register);
  find(library, "ncclCommWindowDeregister", functions_.comm_window_deregister);
  find(library, "ncclGetErrorString", functions_.get_error_string);
  if (!is_loaded())
    std::snprintf(why_not_, sizeof why_not_, "%s is not NCCL, or older than 2.19: it has no ncclMemAlloc",
                  file);
}

template <class... Parameters, class... Arguments>
nccl_status nccl_library::call(int (*function)(Parameters...), Arguments... arguments) const noexcept {
  if (function != nullptr) return static_cast<nccl_status>(function(arguments...));
  return is_loaded() ? nccl_status::not_found : nccl_status::not_installed;
}

nccl_status nccl_library::allocate(std::size_t bytes, std::uintptr_t& block) noexcept {
  void* first = nullptr;
  const nccl_status result = call(functions_.mem_alloc, &first, bytes);
  if (result == nccl_status::success) block = reinterpret_cast<std::uintptr_t>(first);
  return result;
}
nccl_status nccl_library::free(std::uintptr_t block) noexcept {
  return call(functions_.mem_free, reinterpret_cast<void*>(block));
}
nccl_status nccl_library::device_of(nccl_communicator communicator, device_number& device) noexcept {
  int found = 0;
  const nccl_status result = call(functions_.comm_cu_device, communicator, &found);
  if (result == nccl_status::success) device = found;
  return result;
}
nccl_status nccl_library::progress(nccl_communicator communicator, nccl_status& now) noexcept {
  int found = 0;
  const nccl_status result = call(functions_.comm_get_async_error, communicator, &found);
  if (result == nccl_status::success) now = static_cast<nccl_status>(found);
  return result;
}
nccl_status nccl_library::register_buffer(nccl_communicator communicator, byte_range range,
                                          void*& handle) noexcept {
  return call(functions_.comm_register, communicator, range.data(), range.size, &handle);
}
nccl_status nccl_library::deregister_buffer(nccl_communicator communicator, void* handle) noexcept {
  return call(functions_.comm_deregister, communicator, handle);
}
nccl_status nccl_library::register_window(nccl_communicator communicator, byte_range range,
                                          nccl_window_flags flags, nccl_window& window) noexcept {
  return call(functions_.comm_window_register, communicator, range.data(), range.size, &window,
              static_cast<int>(flags));
}
nccl_status nccl_library::deregister_window(nccl_communicator communicator, nccl_window window) noexcept {
  return call(functions_.comm_window_deregister, communicator, window);
}

char const* nccl_library::error_string(nccl_status result) noexcept {
  if (result == nccl_status::not_installed && !is_loaded()) return why_not_;
  char const* text = nullptr;
  if (static_cast<int>(result) >= 0 && functions_.get_error_string != nullptr)
    text = functions_.get_error_string(static_cast<int>(result));
  return text != nullptr ? text : nccl::error_string(result);
}

// Arenas in static storage may end later.
nccl& system_nccl() noexcept {
  static auto& library = *new tidemark::detail::until_unload<nccl_library>{"libnccl.so.2"};
  return library.value;
}

}  // namespace tidemark::gpu
