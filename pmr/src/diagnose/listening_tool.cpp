// SPDX-License-Identifier: Apache-2.0
// The only file that includes NVTX, whose static inline functions must not be visible to modules.
#include <tidemark/diagnose/detail/listening_tool.hpp>

#if TIDEMARK_NVTX

// clang-tidy's analyzer reports errors in NVTX's loader, which is not our code.
#if defined(__clang_analyzer__)
#define NVTX_DISABLE  // NOLINT(readability-identifier-naming): NVTX has chosen it
#endif

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include <tidemark/core/detail/until_unload.hpp>

namespace tidemark::detail {
namespace {

bool is_compute_sanitizer() noexcept {
  static const bool is = [] {
    char const* const tool = std::getenv("NVTX_INJECTION64_PATH");  // NOLINT(concurrency-mt-unsafe): once
    return tool != nullptr && std::strstr(tool, "libsanitizer-collection") != nullptr;
  }();
  return is;
}

struct tool_domain {
  nvtxDomainHandle_t handle = nvtxDomainCreateA("tidemark");

  tool_domain() = default;
  tool_domain(tool_domain const&) = delete;
  tool_domain& operator=(tool_domain const&) = delete;
  ~tool_domain() { nvtxDomainDestroy(handle); }
};

// Never destroyed, because arenas may end in destructors of static objects.
nvtxDomainHandle_t domain() noexcept {
  static auto& made = *new until_unload<tool_domain>;
  return made.value.handle;
}

void const* pointer(std::uintptr_t address) noexcept { return reinterpret_cast<void const*>(address); }

// Makes an argument of the functions of NVTX's memory extension.
template <class Struct>
Struct make_struct() noexcept {
  Struct made{};
  made.extCompatID = NVTX_EXT_COMPATID_MEM;
  made.structSize = sizeof made;
  return made;
}

nvtxMemVirtualRangeDesc_t describe(std::uintptr_t first, std::size_t bytes) noexcept {
  nvtxMemVirtualRangeDesc_t range{};
  range.size = bytes;
  range.ptr = pointer(first);
  return range;
}

nvtxMemHeapHandle_t handle(listening_tool::heap_id heap) noexcept {
  return reinterpret_cast<nvtxMemHeapHandle_t>(heap);
}

// compute-sanitizer takes the names in its leak reports from this call, and refuses the call for a heap.
void name_region(std::uintptr_t first, char const* name) noexcept {
  nvtxMemRegionNameDesc_t named{};
  named.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  named.nameType = NVTX_MESSAGE_TYPE_ASCII;
  named.region.pointer = pointer(first);
  named.name.ascii = name;
  auto names = make_struct<nvtxMemRegionsNameBatch_t>();
  names.regionCount = 1;
  names.regionElementSize = sizeof named;
  names.regionElements = &named;
  nvtxMemRegionsName(domain(), &names);
}

class nvtx_tool final : public listening_tool {
 public:
  [[nodiscard]] bool takes_whole_allocations_only() const noexcept override { return is_compute_sanitizer(); }
  heap_id open_heap(std::uintptr_t first, std::size_t bytes, char const* name) noexcept override {
    const nvtxMemVirtualRangeDesc_t range = describe(first, bytes);
    auto heap = make_struct<nvtxMemHeapDesc_t>();
    heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    heap.typeSpecificDescSize = sizeof range;
    heap.typeSpecificDesc = &range;
    heap.messageType = NVTX_MESSAGE_TYPE_ASCII;
    heap.message.ascii = name;
    // Without a tool the result is null or the value of NVTX_MEM_HEAP_HANDLE_NO_TOOL. The macro does not
    // compile in toolkit 13.0.
    const auto id = reinterpret_cast<heap_id>(nvtxMemHeapRegister(domain(), &heap));
    return id != ~heap_id{0} ? id : 0;
  }
  void reset_heap(heap_id heap) noexcept override { nvtxMemHeapReset(domain(), handle(heap)); }
  void close_heap(heap_id heap) noexcept override { nvtxMemHeapUnregister(domain(), handle(heap)); }

  void open_region(heap_id heap, std::uintptr_t first, std::size_t bytes,
                   char const* name) noexcept override {
    const nvtxMemVirtualRangeDesc_t range = describe(first, bytes);
    auto regions = make_struct<nvtxMemRegionsRegisterBatch_t>();
    regions.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    regions.heap = handle(heap);
    regions.regionCount = 1;
    regions.regionDescElementSize = sizeof range;
    regions.regionDescElements = &range;
    nvtxMemRegionsRegister(domain(), &regions);
    name_region(first, name);
  }
  void resize_region(std::uintptr_t first, std::size_t bytes) noexcept override {
    const nvtxMemVirtualRangeDesc_t range = describe(first, bytes);
    auto regions = make_struct<nvtxMemRegionsResizeBatch_t>();
    regions.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    regions.regionDescCount = 1;
    regions.regionDescElementSize = sizeof range;
    regions.regionDescElements = &range;
    nvtxMemRegionsResize(domain(), &regions);
  }
  void close_regions(std::uintptr_t const* firsts, std::size_t n) noexcept override {
    std::array<nvtxMemRegionRef_t, max_closed> references{};
    for (std::size_t i = 0; i < n; ++i) references[i].pointer = pointer(firsts[i]);
    auto regions = make_struct<nvtxMemRegionsUnregisterBatch_t>();
    regions.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    regions.refCount = n;
    regions.refElementSize = sizeof references[0];
    regions.refElements = references.data();
    nvtxMemRegionsUnregister(domain(), &regions);
  }
};

constinit nvtx_tool nvtx;
constinit std::atomic<listening_tool*> tool{&nvtx};

}  // namespace

listening_tool& current_tool() noexcept { return *tool.load(std::memory_order_acquire); }

listening_tool* set_current_tool(listening_tool* replacement) noexcept {
  return tool.exchange(replacement != nullptr ? replacement : &nvtx, std::memory_order_acq_rel);
}

}  // namespace tidemark::detail

#endif
