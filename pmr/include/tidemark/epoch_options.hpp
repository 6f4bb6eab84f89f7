// SPDX-License-Identifier: Apache-2.0
/// @file
/// How an `epoch_resource` is made.
#pragma once

#include <cstddef>
#include <memory_resource>

#include <tidemark/config.hpp>
#include <tidemark/units.hpp>
#include <tidemark/violation.hpp>

namespace tidemark {

/// Options of `epoch_resource`.
struct epoch_options {
  /// Reclaimed blocks are withheld from the upstream up to this many bytes, the oldest go first, so that who
  /// gives one back late is recognised although the upstream would have handed it out again; and so that
  /// AddressSanitizer sees who touches one. 0: reclaimed blocks go to the upstream at once. An upstream that is
  /// rewound or cleared must have them back before: `epoch_resource::release_quarantine()`, or 0 here.
  std::size_t quarantine_bytes_max = check_level >= 2 ? 64 * MiB : 0;
  /// Whether the upstream's memory may be touched by the host. If not, blocks in quarantine are left as they
  /// are. Nothing else touches blocks.
  bool host_memory = true;
  /// Where the records of blocks are kept, which is host memory; null: `std::pmr::new_delete_resource()`.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// Where memory comes from; null: `std::pmr::get_default_resource()`.
  std::pmr::memory_resource* upstream = nullptr;
  /// In messages and statistics; must outlive the resource.
  char const* name = "epochs";
};

}  // namespace tidemark
