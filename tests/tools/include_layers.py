# SPDX-License-Identifier: Apache-2.0
"""A header includes only headers of its own or a lower layer: the rule of docs/design.md, checked.

A layer is a list of headers; a header that is in none is an error, so that a new one must be placed. The device part
lies in a folder of its own, on top of all of the host's, whose headers therefore include none of its.
"""
import pathlib
import re
import sys

# From the bottom up. Within a layer any header may include any other.
LAYERS = [
    ("configuration", ["config.hpp", "macros.hpp", "units.hpp"]),
    ("detail", ["detail/align.hpp", "detail/identity.hpp", "detail/sanitizers.hpp", "detail/listening_tool.hpp",
                "detail/device_marks.hpp", "detail/named_range.hpp", "detail/brief_lock.hpp",
                "detail/leads_to_memory.hpp", "detail/shared_steps.hpp", "detail/single_writer.hpp", "detail/thread_owned.hpp"]),
    ("memory", ["byte_range.hpp", "violation.hpp", "warning.hpp", "out_of_memory.hpp", "detail/block_ledger.hpp",
                "os_memory.hpp", "address_space.hpp", "virtual_memory.hpp",
                "borrowed_memory.hpp", "upstream_memory.hpp"]),
    ("arena", ["arena.hpp", "arena_mark.hpp", "arena_options.hpp", "arena_scope.hpp", "arena_stats.hpp",
               "detail/arena_chunk.hpp", "detail/rewind_history.hpp", "detail/arena_growth.hpp",
               "detail/arena_rewind.hpp", "detail/arena_checks.hpp"]),
    ("scratch", ["scratch.hpp"]),
    ("pool", ["pool.hpp", "synchronized_pool.hpp", "global_pool.hpp", "pool_options.hpp", "pool_stats.hpp",
              "bucket_histogram.hpp", "memory_pressure.hpp", "pressure_monitor.hpp", "detail/size_classes.hpp",
              "detail/block_cache.hpp", "detail/slab_store.hpp", "detail/large_blocks.hpp", "detail/trim_times.hpp", "detail/chain_stack.hpp", "detail/depot.hpp",
              "reuse_cache.hpp", "reuse_cache_options.hpp", "reuse_cache_stats.hpp", "reuse_fence.hpp", "byte_cap.hpp",
              "detail/kept_blocks.hpp"]),
    ("epoch", ["epoch_options.hpp", "epoch_stats.hpp", "epoch_resource.hpp", "epoch.hpp", "with_epoch.hpp",
               "buffer_view.hpp", "buffer.hpp", "owner.hpp", "use_after_epoch.hpp", "detail/tracked_block.hpp",
               "detail/block_table.hpp", "detail/block_group.hpp", "detail/ended_lives.hpp", "detail/storage.hpp",
               "detail/keepable.hpp"]),
    ("workspace", ["tensor_view.hpp", "bit_view.hpp", "dlpack.hpp", "detail/element_name.hpp", "detail/extents.hpp",
                   "detail/view_life.hpp", "detail/slot_life.hpp", "detail/slot_list.hpp", "detail/header_cache.hpp",
                   "detail/workspace_core.hpp", "workspace_acquisition.hpp", "detail/escape.hpp",
                   "workspace.hpp", "workspace_errors.hpp", "workspace_compaction.hpp", "workspace_options.hpp", "workspace_scope.hpp",
                   "workspace_stats.hpp", "workspace_sweeps.hpp", "with_workspace.hpp", "this_thread_workspace.hpp"]),
    ("plan", ["lifetime.hpp", "plan.hpp", "plan_options.hpp", "step_plan.hpp", "detail/step_run.hpp",
              "detail/step_record.hpp", "detail/planned_region.hpp", "detail/planned_core.hpp",
              "planned_arena.hpp", "planned_arena_options.hpp", "planned_arena_stats.hpp"]),
    ("telemetry", ["resource_stats.hpp", "trace_log.hpp", "trace_resource.hpp", "trace_slice.hpp",
                   "detail/trace_file.hpp", "detail/trace_track.hpp", "live_block.hpp", "allocation_site.hpp",
                   "statistics_resource.hpp", "limit_resource.hpp", "expect_no_upstream.hpp", "tracking_resource.hpp", "test_resource.hpp",
                   "detail/usage_counter.hpp", "detail/resource_adaptor.hpp", "detail/block_report.hpp"]),
    ("graph", ["graph_layout.hpp", "detail/monotone_layout.hpp", "graph_arena.hpp", "graph_arena_options.hpp",
               "graph_arena_stats.hpp", "graph_errors.hpp", "rehearse.hpp", "unique_block.hpp", "baked_blocks.hpp",
               "capture_switch.hpp", "capture_switch_options.hpp", "capture_switch_stats.hpp", "graph_backend.hpp",
               "captured_graph.hpp", "capture.hpp"]),
    ("all", ["tidemark.hpp"]),
    ("driver", ["cuda/status.hpp",
                "cuda/driver.hpp",
                "cuda/cuda_error.hpp",
                "cuda/event.hpp",
                "cuda/stream.hpp",
                "cuda/capture_backend.hpp",
                "cuda/capture.hpp",
                "cuda/stream_order.hpp",
                "cuda/detail/capturing.hpp",
                "cuda/detail/event_result.hpp",
                "cuda/detail/event_stock.hpp",
                "cuda/detail/on_device.hpp", "cuda/detail/relaxed_mode.hpp"]),
    ("device memory", ["cuda/block_kind.hpp", "cuda/memory_access.hpp",
                       "cuda/block_memory.hpp",
                       "cuda/block_resource.hpp",
                       "cuda/detail/mapped_range.hpp",
                       "cuda/detail/over_aligned.hpp",
                       "cuda/memory_pool.hpp",
                       "cuda/async_resource.hpp",
                       "cuda/detail/uncaptured_memory.hpp",
                       "cuda/virtual_memory.hpp"]),
    ("device resources", ["cuda/device_arena.hpp", "cuda/device_planned_arena.hpp",
                          "cuda/device_cache.hpp",
                          "cuda/device_cache_options.hpp",
                          "cuda/device_pool.hpp",
                          "cuda/device_pool_options.hpp",
                          "cuda/detail/device_blocks.hpp",
                          "cuda/detail/device_classes.hpp"]),
    ("all of the device part", ["cuda.hpp"]),
    ("adapters for Thrust", ["thrust/cuda_resource.hpp",
                             "thrust/detail/backend.hpp",
                             "thrust/detail/give_back.hpp",
                             "thrust/detail/omp_temporaries.hpp",
                             "thrust/detail/stream_policy.hpp",
                             "thrust/foreign_resource.hpp",
                             "thrust/policy.hpp",
                             "thrust/thrust_allocator.hpp",
                             "thrust/thrust_resource.hpp",
                             "thrust/vectors.hpp"]),
    ("all adapters for Thrust", ["thrust.hpp"]),
]
# Headers that include all public ones of their part, and how the names of the part's headers begin.
UMBRELLAS = {"tidemark.hpp": "", "cuda.hpp": "cuda/", "thrust.hpp": "thrust/"}

roots = [pathlib.Path(sys.argv[1]) / part / "include/tidemark" for part in ("pmr", "thrust_adapters")]
level = {header: i for i, (_, headers) in enumerate(LAYERS) for header in headers}
name = [layer for layer, _ in LAYERS]
failures = []
path_of = {str(path.relative_to(root)): path for root in roots for path in sorted(root.rglob("*.hpp"))}
found = [*path_of, "config.hpp"]
for header in found:
    if header not in level:
        failures.append(f"{header}: in no layer; add it to LAYERS in {__file__}")
        continue
    if header == "config.hpp":
        continue  # generated
    text = path_of[header].read_text()
    for included in re.findall(r'#include <tidemark/([^>]+)>', text):
        if included not in level:
            failures.append(f"{header}: includes <tidemark/{included}>, which does not exist")
        elif level[included] > level[header]:
            failures.append(f"{header} ({name[level[header]]}) includes {included} of the higher layer "
                            f"{name[level[included]]}")
    if re.search(r'#include "', text):
        failures.append(f"{header}: includes with quotes; public headers are found by <tidemark/...>")
failures += [f"{header}: in LAYERS but not in the tree" for header in level if header not in found]
part_of = {header: next((part for part in ("cuda/", "thrust/") if header.startswith(part)), "") for header in level}
for umbrella, part in UMBRELLAS.items():
    everything = set(re.findall(r'#include <tidemark/([^>]+)>', path_of[umbrella].read_text()))
    failures += [f"{umbrella} does not include {header}" for header in level
                 if part_of[header] == part and "detail/" not in header and header not in UMBRELLAS
                 and header not in everything]
print(f"{len(found)} headers, {len(failures)} failures", *failures, sep="\n")
sys.exit(1 if failures else 0)
