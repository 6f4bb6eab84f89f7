/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the planner from a C11 program: plan_c_test CASE. Each case is one fact. Plans are checked pair by
 * pair, independent of the planner. Wrong calls must leave their outputs unchanged. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidemark_plan.h>

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

enum { n_max = 64 };

typedef struct {
  uint64_t begin[n_max], end[n_max], size[n_max], alignment[n_max], fixed[n_max];
} arrays;

static char message[TIDEMARK_PLAN_MESSAGE_BYTES];

static tidemark_plan_blocks blocks_of(arrays const* all, uint64_t count) {
  tidemark_plan_blocks blocks = TIDEMARK_PLAN_BLOCKS_INIT;
  blocks.count = count;
  blocks.begin = all->begin;
  blocks.end = all->end;
  blocks.size = all->size;
  return blocks;
}

/* 10, 20 and 30 bytes, of which 50 are live at once. */
static arrays three(void) {
  arrays all = {{0, 1, 2}, {2, 3, 4}, {10, 20, 30}, {1, 1, 1}, {0}};
  for (int i = 0; i < n_max; ++i) all.fixed[i] = TIDEMARK_PLAN_NOT_FIXED;
  return all;
}

static uint64_t next_random(uint64_t* state) {
  *state = *state * 6364136223846793005U + 1442695040888963407U;
  return *state >> 33;
}

static arrays random_arrays(uint64_t seed) {
  arrays all = three();
  for (int i = 0; i < n_max; ++i) {
    all.begin[i] = next_random(&seed) % 50;
    all.end[i] = all.begin[i] + 1 + next_random(&seed) % 20;
    all.size[i] = next_random(&seed) % 1000;
    all.alignment[i] = (uint64_t)1 << next_random(&seed) % 7;
  }
  return all;
}

static int overlap(uint64_t begin, uint64_t end, uint64_t other_begin, uint64_t other_end) {
  return begin < other_end && other_begin < end;
}

/* Aborts if two blocks live at once share a byte, or if a block ends above the height. */
static void expect_sound(arrays const* all, uint64_t count, uint64_t const* offsets, uint64_t height) {
  for (uint64_t i = 0; i < count; ++i) {
    EXPECT(offsets[i] + all->size[i] <= height);
    for (uint64_t j = 0; j < i; ++j) {
      EXPECT(!overlap(all->begin[i], all->end[i], all->begin[j], all->end[j]) ||
             !overlap(offsets[i], offsets[i] + all->size[i], offsets[j], offsets[j] + all->size[j]));
    }
  }
}

/* The call is rejected with exactly this sentence, and writes nothing else. */
static void expect_refusal(tidemark_plan_blocks const* blocks, tidemark_plan_options const* options,
                           char const* sentence) {
  uint64_t offsets[n_max];
  for (int i = 0; i < n_max; ++i) offsets[i] = 77;
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  result.height = 78;
  result.proof = 79;
  strcpy(message, "of before");
  const int32_t status = tidemark_plan_make(blocks, options, offsets, &result, message, sizeof message);
  if (status != TIDEMARK_PLAN_INVALID || strcmp(message, sentence) != 0) {
    fprintf(stderr, "status %" PRId32 ": %s\nshould be: %s\n", status, message, sentence);
    exit(1);
  }
  for (int i = 0; i < n_max; ++i) EXPECT(offsets[i] == 77);
  EXPECT(result.height == 78 && result.proof == 79 && result.lower_bound == 0 && result.proven_bound == 0);
}

/* ---- plans ---- */

static void places_blocks_in_live_bytes(void) {
  const arrays all = three();
  const tidemark_plan_blocks blocks = blocks_of(&all, 3);
  uint64_t offsets[3];
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  strcpy(message, "of before");
  EXPECT(tidemark_plan_make(&blocks, NULL, offsets, &result, message, sizeof message) == TIDEMARK_PLAN_OK);
  EXPECT(strcmp(message, "") == 0);
  EXPECT(result.height == 50 && result.lower_bound == 50 && result.proof == TIDEMARK_PLAN_AT_BOUND);
  EXPECT(result.nodes >= 3 && result.elapsed_ns > 0 && result.struct_size == sizeof result);
  expect_sound(&all, 3, offsets, 50);
}

static void random_plans_are_sound_and_aligned(void) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const arrays all = random_arrays(seed);
    tidemark_plan_blocks blocks = blocks_of(&all, seed % (n_max + 1));
    blocks.alignment = all.alignment;
    tidemark_plan_options options = TIDEMARK_PLAN_OPTIONS_INIT;
    options.node_limit = 2000;
    options.alignment = seed % 2 == 0 ? 1 : 16;
    uint64_t offsets[n_max];
    tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
    EXPECT(tidemark_plan_make(&blocks, &options, offsets, &result, NULL, 0) == TIDEMARK_PLAN_OK);
    expect_sound(&all, blocks.count, offsets, result.height);
    EXPECT(result.lower_bound <= result.proven_bound && result.proven_bound <= result.height);
    EXPECT((result.proof == TIDEMARK_PLAN_OPEN) == (result.proven_bound < result.height));
    EXPECT(result.height % options.alignment == 0);
    for (uint64_t i = 0; i < blocks.count; ++i)
      EXPECT(offsets[i] % all.alignment[i] == 0 && offsets[i] % options.alignment == 0);
  }
}

static void conflicts_alone_keep_blocks_apart(void) {
  /* A ring of four: each block conflicts with two, so that 0 and 2 share bytes, and so do 1 and 3. */
  uint64_t const size[] = {8, 4, 8, 4}, conflicts[] = {0, 1, 1, 2, 2, 3, 3, 0};
  tidemark_plan_blocks blocks = TIDEMARK_PLAN_BLOCKS_INIT;
  blocks.count = 4;
  blocks.size = size;
  blocks.conflict_count = 4;
  blocks.conflicts = conflicts;
  uint64_t offsets[4];
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  EXPECT(tidemark_plan_make(&blocks, NULL, offsets, &result, message, sizeof message) == TIDEMARK_PLAN_OK);
  EXPECT(result.height == 12 && result.proof == TIDEMARK_PLAN_AT_BOUND);
  for (int i = 0; i < 4; ++i) {
    const int j = (i + 1) % 4;
    EXPECT(!overlap(offsets[i], offsets[i] + size[i], offsets[j], offsets[j] + size[j]));
  }
  /* Without pairs there are no conflicts. */
  blocks.conflict_count = 0;
  EXPECT(tidemark_plan_make(&blocks, NULL, offsets, &result, message, sizeof message) == TIDEMARK_PLAN_OK);
  EXPECT(result.height == 8);
}

static void fixed_blocks_stay(void) {
  arrays all = three();
  all.fixed[1] = 100;
  tidemark_plan_blocks blocks = blocks_of(&all, 3);
  blocks.fixed_offset = all.fixed;
  uint64_t offsets[3];
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  EXPECT(tidemark_plan_make(&blocks, NULL, offsets, &result, message, sizeof message) == TIDEMARK_PLAN_OK);
  EXPECT(offsets[1] == 100 && result.height == 120 && result.lower_bound == 120);
  expect_sound(&all, 3, offsets, 120);
}

static void no_blocks_are_a_plan_of_height_0(void) {
  tidemark_plan_blocks blocks = TIDEMARK_PLAN_BLOCKS_INIT;
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  EXPECT(tidemark_plan_make(&blocks, NULL, NULL, &result, message, sizeof message) == TIDEMARK_PLAN_OK);
  EXPECT(result.height == 0 && result.lower_bound == 0 && result.proof == TIDEMARK_PLAN_AT_BOUND);
  EXPECT(tidemark_plan_make(&blocks, NULL, NULL, NULL, NULL, 0) == TIDEMARK_PLAN_OK);
}

static void blocks_without_bytes_take_nothing(void) {
  arrays all = three();
  memset(all.size, 0, sizeof all.size);
  const tidemark_plan_blocks blocks = blocks_of(&all, 3);
  uint64_t offsets[3] = {1, 1, 1};
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  EXPECT(tidemark_plan_make(&blocks, NULL, offsets, &result, message, sizeof message) == TIDEMARK_PLAN_OK);
  EXPECT(result.height == 0 && offsets[0] == 0 && offsets[2] == 0);
}

static void node_limit_repeats_a_plan_and_a_larger_limit_never_raises_it(void) {
  const arrays all = random_arrays(1);
  const tidemark_plan_blocks blocks = blocks_of(&all, n_max);
  tidemark_plan_options options = TIDEMARK_PLAN_OPTIONS_INIT;
  options.time_limit_ns = TIDEMARK_PLAN_NO_LIMIT;
  uint64_t before = UINT64_MAX;
  for (uint64_t limit = 0; limit < 5000; limit += 1000) {
    options.node_limit = limit;
    uint64_t offsets[2][n_max];
    tidemark_plan_result result[2] = {TIDEMARK_PLAN_RESULT_INIT, TIDEMARK_PLAN_RESULT_INIT};
    for (int i = 0; i < 2; ++i)
      EXPECT(tidemark_plan_make(&blocks, &options, offsets[i], &result[i], NULL, 0) == TIDEMARK_PLAN_OK);
    EXPECT(memcmp(offsets[0], offsets[1], sizeof offsets[0]) == 0 && result[0].nodes == result[1].nodes);
    EXPECT(result[0].height <= before);
    before = result[0].height;
  }
}

/* Returns true if the blocks from `first` on fit into this height, by trying all offsets. */
static int fits(arrays const* all, uint64_t count, uint64_t height, uint64_t first, uint64_t* offsets) {
  if (first == count) return 1;
  for (uint64_t at = 0; at + all->size[first] <= height; ++at) {
    uint64_t i = 0;
    while (i < first && !(overlap(all->begin[i], all->end[i], all->begin[first], all->end[first]) &&
                          overlap(offsets[i], offsets[i] + all->size[i], at, at + all->size[first])))
      ++i;
    offsets[first] = at;
    if (i == first && fits(all, count, height, first + 1, offsets)) return 1;
  }
  return 0;
}

static void reports_how_optimality_is_known(void) {
  const arrays all = {
      {0, 1, 0, 6, 2, 6, 3, 4}, {1, 5, 3, 7, 4, 11, 5, 7}, {6, 4, 6, 6, 2, 2, 3, 5}, {0}, {0}};
  uint64_t offsets[8];
  EXPECT(!fits(&all, 8, 13, 0, offsets) && fits(&all, 8, 14, 0, offsets));
  const tidemark_plan_blocks blocks = blocks_of(&all, 8);
  tidemark_plan_options options = TIDEMARK_PLAN_OPTIONS_INIT;
  options.time_limit_ns = TIDEMARK_PLAN_NO_LIMIT;
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  EXPECT(tidemark_plan_make(&blocks, &options, offsets, &result, NULL, 0) == TIDEMARK_PLAN_OK);
  expect_sound(&all, 8, offsets, 14);
  EXPECT(result.height == 14);
  EXPECT(result.proof == (result.lower_bound == 14 ? TIDEMARK_PLAN_AT_BOUND : TIDEMARK_PLAN_PROVEN));
  options.node_limit = 8;
  EXPECT(tidemark_plan_make(&blocks, &options, offsets, &result, NULL, 0) == TIDEMARK_PLAN_OK);
  EXPECT(result.lower_bound == 14 || result.proof == TIDEMARK_PLAN_OPEN);
}

static void a_capacity_ends_the_search(void) {
  const arrays all = random_arrays(3);
  const tidemark_plan_blocks blocks = blocks_of(&all, n_max);
  tidemark_plan_options options = TIDEMARK_PLAN_OPTIONS_INIT;
  options.node_limit = 0; /* the plan of make_plan alone */
  uint64_t offsets[n_max];
  tidemark_plan_result first = TIDEMARK_PLAN_RESULT_INIT, met = TIDEMARK_PLAN_RESULT_INIT;
  EXPECT(tidemark_plan_make(&blocks, &options, offsets, &first, NULL, 0) == TIDEMARK_PLAN_OK);
  options.node_limit = TIDEMARK_PLAN_NO_LIMIT;
  options.time_limit_ns = TIDEMARK_PLAN_NO_LIMIT;
  options.capacity = first.height;
  EXPECT(tidemark_plan_make(&blocks, &options, offsets, &met, NULL, 0) == TIDEMARK_PLAN_OK);
  EXPECT(met.height == first.height && met.nodes == first.nodes);
}

/* ---- progress ---- */

typedef struct {
  uint64_t calls, last_height, calls_max;
} watcher;

static int watch(void* context, tidemark_plan_progress const* now) {
  watcher* const seen = context;
  EXPECT(now->struct_size == sizeof *now && now->lower_bound <= now->proven_bound);
  EXPECT(now->proven_bound <= now->height);
  EXPECT(seen->calls == 0 || now->height <= seen->last_height);
  seen->last_height = now->height;
  return ++seen->calls == seen->calls_max;
}

static void progress_reports_lower_plans(void) {
  const arrays all = random_arrays(5);
  const tidemark_plan_blocks blocks = blocks_of(&all, n_max);
  watcher seen = {0, 0, UINT64_MAX};
  tidemark_plan_options options = TIDEMARK_PLAN_OPTIONS_INIT;
  options.node_limit = 3000;
  options.on_progress = watch;
  options.context = &seen;
  uint64_t offsets[n_max];
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  EXPECT(tidemark_plan_make(&blocks, &options, offsets, &result, NULL, 0) == TIDEMARK_PLAN_OK);
  EXPECT(seen.calls > 0 && seen.last_height == result.height);
}

static void callback_cancels_the_search_and_nothing_is_written(void) {
  const arrays all = random_arrays(5);
  const tidemark_plan_blocks blocks = blocks_of(&all, n_max);
  watcher seen = {0, 0, 1};
  tidemark_plan_options options = TIDEMARK_PLAN_OPTIONS_INIT;
  options.on_progress = watch;
  options.context = &seen;
  uint64_t offsets[n_max] = {77};
  tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
  EXPECT(tidemark_plan_make(&blocks, &options, offsets, &result, message, sizeof message) ==
         TIDEMARK_PLAN_CANCELLED);
  EXPECT(strcmp(message, "on_progress ended the search") == 0);
  EXPECT(seen.calls == 1 && offsets[0] == 77 && result.height == 0);
}

/* ---- wrong calls ---- */

static void names_an_invalid_block(void) {
  arrays all = three();
  tidemark_plan_blocks blocks = blocks_of(&all, 3);
  blocks.alignment = all.alignment;
  blocks.fixed_offset = all.fixed;
  all.end[1] = 1;
  expect_refusal(&blocks, NULL, "block 1 ends at 1, which is not after its begin, 1");
  all.end[1] = 0;
  expect_refusal(&blocks, NULL, "block 1 ends at 0, which is not after its begin, 1");
  all.end[1] = 3;
  all.alignment[2] = 0;
  expect_refusal(&blocks, NULL, "block 2 has alignment 0, which is not a power of two");
  all.alignment[2] = 24;
  expect_refusal(&blocks, NULL, "block 2 has alignment 24, which is not a power of two");
  all.alignment[2] = UINT64_MAX;
  expect_refusal(&blocks, NULL, "block 2 has alignment 18446744073709551615, which is not a power of two");
  all.alignment[2] = 8;
  all.fixed[2] = 12;
  expect_refusal(&blocks, NULL, "block 2 is fixed at offset 12, which is not a multiple of its alignment 8");
  all.fixed[2] = 0;
  all.fixed[1] = 29;
  expect_refusal(&blocks, NULL,
                 "block 1 and block 2 are in conflict, and their fixed offsets make them share bytes");
}

static void names_the_block_that_makes_the_sum_too_large(void) {
  arrays all = three();
  tidemark_plan_blocks blocks = blocks_of(&all, 3);
  blocks.fixed_offset = all.fixed;
  char const* const too_much =
      "block 1 of 18446744073709551615 bytes makes more than 2^62 bytes of the blocks together, each rounded "
      "up to its "
      "alignment";
  all.size[1] = UINT64_MAX;
  expect_refusal(&blocks, NULL, too_much);
  all.size[1] = ((uint64_t)1 << 62) - 9;
  expect_refusal(
      &blocks, NULL,
      "block 1 of 4611686018427387895 bytes makes more than 2^62 bytes of the blocks together, each rounded "
      "up to its alignment");
  all.size[1] = 20;
  all.fixed[0] = UINT64_MAX - 1;
  expect_refusal(&blocks, NULL,
                 "block 0 is fixed at offset 18446744073709551614 and has 10 bytes, which end above 2^62");
}

static void names_a_missing_array(void) {
  const arrays all = three();
  tidemark_plan_blocks blocks = blocks_of(&all, 3);
  blocks.size = NULL;
  expect_refusal(&blocks, NULL, "size is null, expected 3 entries");
  blocks.size = all.size;
  blocks.begin = NULL;
  expect_refusal(&blocks, NULL, "begin is null, expected 3 entries");
  blocks.end = NULL;
  expect_refusal(&blocks, NULL, "begin is null, expected 3 entries");
  blocks.begin = all.begin;
  expect_refusal(&blocks, NULL, "end is null, expected 3 entries");
  blocks.end = all.end;
  blocks.conflict_count = 5;
  expect_refusal(&blocks, NULL, "conflicts is null, expected 5 entries");
  expect_refusal(NULL, NULL, "blocks is null");
  blocks.conflict_count = 0;
  EXPECT(tidemark_plan_make(&blocks, NULL, NULL, NULL, message, sizeof message) == TIDEMARK_PLAN_INVALID);
  EXPECT(strcmp(message, "offsets is null, expected 3 entries") == 0);
}

static void rejects_impossible_counts(void) {
  const arrays all = three();
  uint64_t const conflicts[] = {0, 1};
  tidemark_plan_blocks blocks = blocks_of(&all, UINT64_MAX);
  expect_refusal(&blocks, NULL, "count is 18446744073709551615, more blocks than it can count");
  blocks = blocks_of(&all, 3);
  blocks.begin = blocks.end = NULL;
  blocks.conflicts = conflicts;
  blocks.conflict_count = UINT64_MAX;
  expect_refusal(&blocks, NULL, "conflict_count is 18446744073709551615, more than memory can hold");
}

static void rejects_lifetimes_together_with_conflicts(void) {
  const arrays all = three();
  uint64_t const conflicts[] = {0, 3};
  tidemark_plan_blocks blocks = blocks_of(&all, 3);
  blocks.conflicts = conflicts;
  blocks.conflict_count = 1;
  expect_refusal(&blocks, NULL, "begin and end cannot be combined with conflicts");
  blocks.begin = blocks.end = NULL;
  expect_refusal(&blocks, NULL, "conflict 0 names block 3, and there are 3 blocks");
}

static void rejects_impossible_options(void) {
  const arrays all = three();
  const tidemark_plan_blocks blocks = blocks_of(&all, 3);
  tidemark_plan_options options = TIDEMARK_PLAN_OPTIONS_INIT;
  options.alignment = 0;
  expect_refusal(&blocks, &options, "the alignment of the options, 0, is not a power of two");
  options.alignment = 1;
  options.exact = 2;
  expect_refusal(&blocks, &options, "exact is 2, neither 0 nor 1");
}

static void rejects_structs_of_another_size(void) {
  const arrays all = three();
  tidemark_plan_blocks blocks = blocks_of(&all, 3);
  blocks.struct_size += 8;
  expect_refusal(&blocks, NULL,
                 "blocks.struct_size is 80, and this library knows 72: initialize it, or use a library as "
                 "new as the header");
  blocks.struct_size -= 8;
  const tidemark_plan_options options = {0};
  expect_refusal(&blocks, &options,
                 "options.struct_size is 0, and this library knows 72: initialize it, or use a library "
                 "as new as the header");
  uint64_t offsets[3];
  tidemark_plan_result result = {0};
  EXPECT(tidemark_plan_make(&blocks, NULL, offsets, &result, message, sizeof message) ==
         TIDEMARK_PLAN_INVALID);
  EXPECT(strncmp(message, "result.struct_size is 0, ", 25) == 0);
}

static void truncates_a_message_to_its_buffer(void) {
  char small[8];
  memset(small, 'x', sizeof small);
  EXPECT(tidemark_plan_make(NULL, NULL, NULL, NULL, small, 7) == TIDEMARK_PLAN_INVALID);
  EXPECT(memcmp(small, "blocks\0x", 8) == 0);
  EXPECT(tidemark_plan_make(NULL, NULL, NULL, NULL, small, 1) == TIDEMARK_PLAN_INVALID);
  EXPECT(memcmp(small, "\0locks\0x", 8) == 0);
  EXPECT(tidemark_plan_make(NULL, NULL, NULL, NULL, small, 0) == TIDEMARK_PLAN_INVALID && small[1] == 'l');
  EXPECT(tidemark_plan_make(NULL, NULL, NULL, NULL, NULL, 8) == TIDEMARK_PLAN_INVALID);
}

/* ---- the interface ---- */

/* The layout that programs are compiled with. Members may be added at the end of a struct; any other change
 * needs another TIDEMARK_PLAN_ABI_VERSION. */
static void struct_layout_matches_version_1(void) {
  EXPECT(TIDEMARK_PLAN_ABI_VERSION == 1 && tidemark_plan_abi_version() == 1);
  _Static_assert(sizeof(tidemark_plan_blocks) == 72 && offsetof(tidemark_plan_blocks, conflicts) == 64,
                 "blocks");
  _Static_assert(sizeof(tidemark_plan_progress) == 48 && offsetof(tidemark_plan_progress, elapsed_ns) == 32,
                 "progress");
  _Static_assert(offsetof(tidemark_plan_progress, proven_bound) == 40, "what was added later");
  _Static_assert(sizeof(tidemark_plan_options) == 72 && offsetof(tidemark_plan_options, on_progress) == 56,
                 "options");
  _Static_assert(sizeof(tidemark_plan_result) == 56 && offsetof(tidemark_plan_result, proof) == 48, "result");
  _Static_assert(TIDEMARK_PLAN_OK == 0 && TIDEMARK_PLAN_INVALID == 1 && TIDEMARK_PLAN_NO_MEMORY == 2 &&
                     TIDEMARK_PLAN_CANCELLED == 3 && TIDEMARK_PLAN_FAILED == 4,
                 "statuses");
  _Static_assert(TIDEMARK_PLAN_OPEN == 0 && TIDEMARK_PLAN_AT_BOUND == 1 && TIDEMARK_PLAN_PROVEN == 2,
                 "proofs");
  EXPECT(strchr(tidemark_plan_version(), '.') != NULL);
}

static void* plan_again_and_again(void* seed) {
  for (int i = 0; i < 50; ++i) {
    const arrays all = random_arrays(*(uint64_t const*)seed);
    const tidemark_plan_blocks blocks = blocks_of(&all, n_max);
    tidemark_plan_options options = TIDEMARK_PLAN_OPTIONS_INIT;
    options.node_limit = 1000;
    uint64_t offsets[n_max];
    tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
    char own_message[TIDEMARK_PLAN_MESSAGE_BYTES];
    EXPECT(tidemark_plan_make(&blocks, &options, offsets, &result, own_message, sizeof own_message) ==
           TIDEMARK_PLAN_OK);
    expect_sound(&all, n_max, offsets, result.height);
    options.alignment = 3;
    EXPECT(tidemark_plan_make(&blocks, &options, offsets, &result, own_message, sizeof own_message) ==
           TIDEMARK_PLAN_INVALID);
    EXPECT(strcmp(own_message, "the alignment of the options, 3, is not a power of two") == 0);
  }
  return NULL;
}

static void threads_plan_at_once(void) {
  pthread_t threads[4];
  uint64_t seeds[4] = {11, 12, 13, 14};
  for (int i = 0; i < 4; ++i) EXPECT(pthread_create(&threads[i], NULL, plan_again_and_again, &seeds[i]) == 0);
  for (int i = 0; i < 4; ++i) EXPECT(pthread_join(threads[i], NULL) == 0);
}

typedef struct {
  char const* name;
  void (*run)(void);
} test_case;

#define CASE(name) {#name, name}
static test_case const cases[] = {
    CASE(places_blocks_in_live_bytes),
    CASE(random_plans_are_sound_and_aligned),
    CASE(conflicts_alone_keep_blocks_apart),
    CASE(fixed_blocks_stay),
    CASE(no_blocks_are_a_plan_of_height_0),
    CASE(blocks_without_bytes_take_nothing),
    CASE(node_limit_repeats_a_plan_and_a_larger_limit_never_raises_it),
    CASE(reports_how_optimality_is_known),
    CASE(a_capacity_ends_the_search),
    CASE(progress_reports_lower_plans),
    CASE(callback_cancels_the_search_and_nothing_is_written),
    CASE(names_an_invalid_block),
    CASE(names_the_block_that_makes_the_sum_too_large),
    CASE(names_a_missing_array),
    CASE(rejects_impossible_counts),
    CASE(rejects_lifetimes_together_with_conflicts),
    CASE(rejects_impossible_options),
    CASE(rejects_structs_of_another_size),
    CASE(truncates_a_message_to_its_buffer),
    CASE(struct_layout_matches_version_1),
    CASE(threads_plan_at_once),
};

int main(int count, char** arguments) {
  for (size_t i = 0; count == 2 && i < sizeof cases / sizeof cases[0]; ++i) {
    if (strcmp(arguments[1], cases[i].name) != 0) continue;
    cases[i].run();
    return 0;
  }
  fprintf(stderr, "plan_c_test: there is no such case\n");
  return 2;
}
