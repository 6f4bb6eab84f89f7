// SPDX-License-Identifier: Apache-2.0
// A tool as NVTX loads it, by NVTX_INJECTION64_PATH: prints each call that reaches it. Its handles are of
// its own making, so that a call with another's is seen. INJECTED_TOOL=memory or =ranges makes it one
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
constexpr nvtxRangeId_t first_range = 1;

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
  // A tool that knows no ranges has made no domain.
  require(number(domain) == (knows("ranges") ? domain_handle : 0), "the domain");
}

// ---- ranges

nvtxDomainHandle_t create_domain(char const* name) {
  std::printf("domain %s\n", name);
  return reinterpret_cast<nvtxDomainHandle_t>(domain_handle);
}

void name_category(nvtxDomainHandle_t domain, std::uint32_t category, char const* name) {
  require_domain(domain);
  std::printf("category %u is %s\n", static_cast<unsigned>(category), name);
}

nvtxRangeId_t start_range(nvtxDomainHandle_t domain, nvtxEventAttributes_t const* range) {
  static nvtxRangeId_t next = first_range;
  require_domain(domain);
  require(range->version == NVTX_VERSION && range->size == sizeof *range, "the version of a range");
  require(range->messageType == NVTX_MESSAGE_TYPE_ASCII, "the kind of a range's name");
  std::printf("range %d begins: %s of category %u\n", static_cast<int>(next), range->message.ascii,
              static_cast<unsigned>(range->category));
  return next++;
}

void end_range(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
  require_domain(domain);
  std::printf("range %d ends\n", static_cast<int>(range));
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
  if (!knows("ranges")) return 0;
  auto const* const callbacks =
      static_cast<NvtxExportTableCallbacks const*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned n = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &n) == 0) return 0;
  *functions[NVTX_CBID_CORE2_DomainCreateA] = generic(&create_domain);
  *functions[NVTX_CBID_CORE2_DomainNameCategoryA] = generic(&name_category);
  *functions[NVTX_CBID_CORE2_DomainRangeStartEx] = generic(&start_range);
  *functions[NVTX_CBID_CORE2_DomainRangeEnd] = generic(&end_range);
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
