/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The planner of tidemark in C: places blocks with known lifetimes in little memory. Owns no memory: all
 * arrays, inputs and results, belong to the caller.
 *
 *     uint64_t const begin[] = {0, 1, 2}, end[] = {2, 3, 4}, size[] = {10, 20, 30};
 *     tidemark_plan_blocks blocks = TIDEMARK_PLAN_BLOCKS_INIT;
 *     blocks.count = 3, blocks.begin = begin, blocks.end = end, blocks.size = size;
 *     uint64_t offsets[3];
 *     tidemark_plan_result result = TIDEMARK_PLAN_RESULT_INIT;
 *     char message[TIDEMARK_PLAN_MESSAGE_BYTES];
 *     if (tidemark_plan_make(&blocks, NULL, offsets, &result, message, sizeof message) != TIDEMARK_PLAN_OK)
 *       puts(message);
 *
 * For C11 and later, and C++. The interface is stable: a program built with this header runs with every
 * later library of the same TIDEMARK_PLAN_ABI_VERSION. Each struct begins with its size as the caller knows
 * it. Later members come last, and 0 in them means the earlier behaviour. No exception leaves the library,
 * and the library never calls exit. Thread-safety: calls from any threads at once, each with its own memory
 * to write to.
 */
#ifndef TIDEMARK_PLAN_H
#define TIDEMARK_PLAN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TIDEMARK_PLAN_API __attribute__((visibility("default")))
#else
#define TIDEMARK_PLAN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** ABI version of this header. A new version requires programs to be built again. */
#define TIDEMARK_PLAN_ABI_VERSION 1

/** No limit of time or nodes. */
#define TIDEMARK_PLAN_NO_LIMIT UINT64_MAX
/** The fixed offset of a block whose offset the plan chooses. */
#define TIDEMARK_PLAN_NOT_FIXED UINT64_MAX
/** Size for every message in bytes; a shorter buffer gets the beginning. */
#define TIDEMARK_PLAN_MESSAGE_BYTES 256

/** Status that `tidemark_plan_make` returns: an int32_t. */
enum {
  TIDEMARK_PLAN_OK = 0,        /**< a plan was found */
  TIDEMARK_PLAN_INVALID = 1,   /**< an argument is wrong */
  TIDEMARK_PLAN_NO_MEMORY = 2, /**< there is too little memory for the search */
  TIDEMARK_PLAN_CANCELLED = 3, /**< `on_progress` ended the search */
  TIDEMARK_PLAN_FAILED = 4     /**< another error, which the message names */
};

/** Knowledge about lower plans than this one: a uint32_t. */
enum {
  TIDEMARK_PLAN_OPEN = 0,     /**< a lower plan may exist */
  TIDEMARK_PLAN_AT_BOUND = 1, /**< no plan is lower: the height is the lower bound */
  TIDEMARK_PLAN_PROVEN = 2    /**< no plan is lower: the height is the proven bound, above the lower bound */
};

/**
 * The blocks to place: arrays with an entry for each block. Conflicting blocks may not share bytes. Either
 * `begin` and `end` define the conflicts: two blocks conflict if both are live at one moment. Or
 * `conflicts` lists them, for example for several streams; `begin` and `end` are null then, and no other
 * blocks conflict. For `conflicts` the planner does not backtrack, and the bound is the heaviest clique
 * found: a plan above the bound is never known to be the lowest.
 *
 * The sizes, each rounded up to its alignment, sum to at most 2^62 bytes. Fixed blocks end at most there.
 */
typedef struct tidemark_plan_blocks {
  uint64_t struct_size;         /**< sizeof(tidemark_plan_blocks) */
  uint64_t count;               /**< number of blocks; 0 gives a plan of height 0 */
  uint64_t const* begin;        /**< the first moment at which a block is live: any increasing numbers */
  uint64_t const* end;          /**< the first moment at which a block is dead; greater than `begin` */
  uint64_t const* size;         /**< bytes, may be 0 */
  uint64_t const* alignment;    /**< powers of two that divide the offsets; null: 1 */
  uint64_t const* fixed_offset; /**< required offset, or TIDEMARK_PLAN_NOT_FIXED; null: no block is fixed */
  uint64_t conflict_count;      /**< number of pairs */
  uint64_t const* conflicts;    /**< pairs of blocks, counted from 0: 2 * conflict_count numbers */
} tidemark_plan_blocks;

#define TIDEMARK_PLAN_BLOCKS_INIT {sizeof(tidemark_plan_blocks), 0, NULL, NULL, NULL, NULL, NULL, 0, NULL}

/** The progress of a search. */
typedef struct tidemark_plan_progress {
  uint64_t struct_size;  /**< as the library knows it: tells which later members exist */
  uint64_t height;       /**< bytes, of the best plan so far; 0 before the first one */
  uint64_t lower_bound;  /**< bytes; no plan is lower */
  uint64_t nodes;        /**< blocks placed so far, failed tries included */
  uint64_t elapsed_ns;   /**< since the search began */
  uint64_t proven_bound; /**< bytes; the search proved that no plan is lower; >= lower_bound */
} tidemark_plan_progress;

/**
 * Options of a search. The first limit reached ends the search, after the first plan is complete. More
 * nodes never give a worse plan, and neither does more time for `begin` and `end`. The plan is always the
 * same if only `node_limit` ends the search; this requires TIDEMARK_PLAN_NO_LIMIT in `time_limit_ns`.
 */
typedef struct tidemark_plan_options {
  uint64_t struct_size;   /**< sizeof(tidemark_plan_options) */
  uint64_t alignment;     /**< of every offset and of the height, besides the blocks' own; a power of two */
  uint64_t time_limit_ns; /**< ends the search, up to some milliseconds late; or TIDEMARK_PLAN_NO_LIMIT */
  uint64_t node_limit;    /**< ends the search after this many placed blocks; or TIDEMARK_PLAN_NO_LIMIT */
  /** The search ends with a plan of at most this many bytes; 0: with a plan that cannot be lower. If no plan
   *  fits, the search continues until its plan is known to be the lowest, or to the limits. `on_progress` can
   *  end it once `proven_bound` exceeds the capacity. */
  uint64_t capacity;
  uint64_t seed;  /**< of the random choices */
  uint64_t exact; /**< 1: searches until no plan can be lower; 0: keeps each try short */
  /** Called by the planning thread at each lower plan, and at most every few milliseconds. Returns 0 to
   *  continue; any other value ends the search with TIDEMARK_PLAN_CANCELLED. Must return: no longjmp, no
   *  exception. */
  int (*on_progress)(void* context, tidemark_plan_progress const* now);
  void* context; /**< the first argument of `on_progress` */
} tidemark_plan_options;

/** One second at most, bytes without alignment. A null pointer to options means the same. */
#define TIDEMARK_PLAN_OPTIONS_INIT \
  {sizeof(tidemark_plan_options), 1, 1000000000, TIDEMARK_PLAN_NO_LIMIT, 0, 0, 1, NULL, NULL}

/** The properties of a plan. `lower_bound <= proven_bound <= height`; all three are multiples of the
 *  alignment of the options. */
typedef struct tidemark_plan_result {
  uint64_t struct_size;  /**< sizeof(tidemark_plan_result) */
  uint64_t height;       /**< bytes of the memory that holds all blocks */
  uint64_t lower_bound;  /**< bytes: the largest live sum, or the end of a fixed block */
  uint64_t proven_bound; /**< bytes; the search proved that no plan is lower */
  uint64_t nodes;        /**< blocks placed by the search, failed tries included */
  uint64_t elapsed_ns;   /**< time taken */
  uint32_t proof;        /**< TIDEMARK_PLAN_OPEN, _AT_BOUND or _PROVEN */
  uint32_t reserved;     /**< 0 */
} tidemark_plan_result;

#define TIDEMARK_PLAN_RESULT_INIT {sizeof(tidemark_plan_result), 0, 0, 0, 0, 0, 0, 0}

/**
 * Places blocks in as little memory as the limits allow to find. tidemark's `planner::find_plan` documents
 * the search and its costs. Takes up to 1.5 MiB of the calling thread's stack.
 *
 * @param blocks   must not be null.
 * @param options  null: TIDEMARK_PLAN_OPTIONS_INIT.
 * @param offsets  receives the offset of each block, in bytes; may be null if there are no blocks.
 * @param result   receives height, bound and proof; may be null.
 * @param message  receives a sentence that names the error and the block by its number, or "" without an
 *                 error; may be null.
 * @return a status. If it is not TIDEMARK_PLAN_OK, `offsets` and `result` are unchanged.
 */
TIDEMARK_PLAN_API int32_t tidemark_plan_make(tidemark_plan_blocks const* blocks,
                                             tidemark_plan_options const* options, uint64_t* offsets,
                                             tidemark_plan_result* result, char* message,
                                             size_t message_bytes);

/** Returns TIDEMARK_PLAN_ABI_VERSION of the library. */
TIDEMARK_PLAN_API uint32_t tidemark_plan_abi_version(void);

/** Returns the version of tidemark, such as "0.2.0": a literal. */
TIDEMARK_PLAN_API char const* tidemark_plan_version(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
