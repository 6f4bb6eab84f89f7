// SPDX-License-Identifier: Apache-2.0
// A tool as NVTX loads it, by NVTX_INJECTION64_PATH: prints each call that reaches it. Its handles are of
// its own making, so that a call with another's is seen. INJECTED_TOOL=memory or =domains makes it one
// that knows only these.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

namespace {

constexpr std::uintptr_t domain_handle = 0x11, first_heap_handle = 0x1000;

bool knows(char const* what) {
  char const* const only = std::getenv("INJECTED_TOOL");
  return only == nullptr || std::strcmp(only, what) == 0;
}

std::uintptr_t number(void const* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

void require(bool holds, char const* what) {
  if (!holds) std::printf("broken: %s\n", what);
}

template <class Descriptor>
void require_header(Descriptor const& descriptor) {
  require(descriptor.extCompatID == NVTX_EXT_COMPATID_MEM, "the compatibility number");
  require(descriptor.structSize == sizeof descriptor, "the size of the description");
}

void require_domain(nvtxDomainHandle_t domain) {
  // A tool that knows no domains has made none.
  require(number(domain) == (knows("domains") ? domain_handle : 0), "the domain");
}

// ---- the domain

nvtxDomainHandle_t create_domain(char const* name) {
  std::printf("domain %s\n", name);
  return reinterpret_cast<nvtxDomainHandle_t>(domain_handle);
}

template <class Function>
NvtxFunctionPointer generic(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

// ---- memory

void print_range(char const* what, std::uintptr_t handle, nvtxMemVirtualRangeDesc_t const& range) {
  std::printf("%s %zx: %zx, %zu bytes", what, handle, number(range.ptr), range.size);
}

nvtxMemHeapHandle_t register_heap(nvtxDomainHandle_t domain, nvtxMemHeapDesc_t const* heap) {
  static std::uintptr_t next = first_heap_handle;
  require_domain(domain);
  require_header(*heap);
  require(heap->usage == NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR, "the use of a heap");
  require(heap->type == NVTX_MEM_TYPE_VIRTUAL_ADDRESS, "the type of a heap");
  require(heap->typeSpecificDescSize == sizeof(nvtxMemVirtualRangeDesc_t), "the size of a heap's range");
  require(heap->messageType == NVTX_MESSAGE_TYPE_ASCII, "the kind of a heap's name");
  print_range("heap", next, *static_cast<nvtxMemVirtualRangeDesc_t const*>(heap->typeSpecificDesc));
  std::printf(", %s\n", heap->message.ascii);
  return reinterpret_cast<nvtxMemHeapHandle_t>(next++);
}

void unregister_heap(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap) {
  require_domain(domain);
  std::printf("unregister heap %zx\n", number(heap));
}

void reset_heap(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap) {
  require_domain(domain);
  std::printf("reset heap %zx\n", number(heap));
}

void register_regions(nvtxDomainHandle_t domain, nvtxMemRegionsRegisterBatch_t const* regions) {
  require_domain(domain);
  require_header(*regions);
  require(regions->regionType == NVTX_MEM_TYPE_VIRTUAL_ADDRESS, "the type of a region");
  require(regions->regionDescElementSize == sizeof(nvtxMemVirtualRangeDesc_t),
          "the size of a region's range");
  require(regions->regionHandleElementsOut == nullptr, "regions are known by their addresses");
  auto const* const ranges = static_cast<nvtxMemVirtualRangeDesc_t const*>(regions->regionDescElements);
  for (std::size_t i = 0; i < regions->regionCount; ++i) {
    print_range("region of heap", number(regions->heap), ranges[i]);
    std::printf("\n");
  }
}

void resize_regions(nvtxDomainHandle_t domain, nvtxMemRegionsResizeBatch_t const* regions) {
  require_domain(domain);
  require_header(*regions);
  require(regions->regionType == NVTX_MEM_TYPE_VIRTUAL_ADDRESS, "the type of a region");
  require(regions->regionDescElementSize == sizeof(nvtxMemVirtualRangeDesc_t),
          "the size of a region's range");
  auto const* const ranges = static_cast<nvtxMemVirtualRangeDesc_t const*>(regions->regionDescElements);
  for (std::size_t i = 0; i < regions->regionDescCount; ++i) {
    std::printf("resize region %zx: %zu bytes\n", number(ranges[i].ptr), ranges[i].size);
  }
}

void unregister_regions(nvtxDomainHandle_t domain, nvtxMemRegionsUnregisterBatch_t const* regions) {
  require_domain(domain);
  require_header(*regions);
  require(regions->refType == NVTX_MEM_REGION_REF_TYPE_POINTER, "regions are known by their addresses");
  require(regions->refElementSize == sizeof(nvtxMemRegionRef_t), "the size of a reference");
  for (std::size_t i = 0; i < regions->refCount; ++i) {
    std::printf("unregister region %zx\n", number(regions->refElements[i].pointer));
  }
}

void name_regions(nvtxDomainHandle_t domain, nvtxMemRegionsNameBatch_t const* names) {
  require_domain(domain);
  require_header(*names);
  require(names->regionElementSize == sizeof(nvtxMemRegionNameDesc_t), "the size of a name");
  for (std::size_t i = 0; i < names->regionCount; ++i) {
    nvtxMemRegionNameDesc_t const& each = names->regionElements[i];
    require(each.regionRefType == NVTX_MEM_REGION_REF_TYPE_POINTER,
            "allocations are named by their addresses");
    require(each.nameType == NVTX_MESSAGE_TYPE_ASCII, "the kind of an allocation's name");
    std::printf("name %zx: %s\n", number(each.region.pointer), each.name.ascii);
  }
}

template <class Function>
std::intptr_t slot(Function* function) {
  return reinterpret_cast<std::intptr_t>(function);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table);
EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  if (!knows("domains")) return 0;
  auto const* const callbacks =
      static_cast<NvtxExportTableCallbacks const*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned n = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &n) == 0) return 0;
  *functions[NVTX_CBID_CORE2_DomainCreateA] = generic(&create_domain);
  return 1;
}

EXPORTED int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module);
EXPORTED int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  if (!knows("memory") || module->moduleId != NVTX_EXT_MODULEID_MEM) return 0;
  std::intptr_t* const slots = module->segments[0].functionSlots;
  slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = slot(&register_heap);
  slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = slot(&unregister_heap);
  slots[NVTX3EXT_CBID_nvtxMemHeapReset] = slot(&reset_heap);
  slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = slot(&register_regions);
  slots[NVTX3EXT_CBID_nvtxMemRegionsResize] = slot(&resize_regions);
  slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = slot(&unregister_regions);
  slots[NVTX3EXT_CBID_nvtxMemRegionsName] = slot(&name_regions);
  return 1;
}
