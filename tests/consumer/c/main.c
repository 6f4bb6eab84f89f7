/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include <tidemark_plan.h>

int main(void) {
  uint64_t const begin[] = {0, 1, 2}, end[] = {2, 3, 4}, size[] = {10, 20, 30};
  tidemark_plan_blocks blocks = TIDEMARK_PLAN_BLOCKS_INIT;
  blocks.count = 3, blocks.begin = begin, blocks.end = end, blocks.size = size;
  uint64_t offsets[3];
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  if (tidemark_plan_make(&blocks, NULL, offsets, &result, NULL, 0) != TIDEMARK_PLAN_OK) return 1;
  printf("%" PRIu64 " bytes, %s\n", result.height, tidemark_plan_version());
  return 0;
}
