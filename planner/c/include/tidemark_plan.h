/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The planner of tidemark in C: where blocks lie whose lifetimes are known, in little memory. Owns
 * nothing: all arrays, inputs and results alike, are the caller's.
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
 * C11 and later, and C++. The interface is stable: a program that was built with this header runs with
 * every later library of the same TIDEMARK_PLAN_ABI_VERSION. Each struct begins with its size, as the
 * caller knows it; members that are added later come last, and mean the behaviour of before where they
 * are 0. No exception leaves the library, and nothing in it calls exit. Thread-safety: calls from any
 * threads at once, each with memory of its own to write to.
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

/** Of this header. Changes where programs must be built again. */
#define TIDEMARK_PLAN_ABI_VERSION 1

/** A limit that there is not. */
#define TIDEMARK_PLAN_NO_LIMIT UINT64_MAX
/** The fixed offset of a block whose offset the plan chooses. */
#define TIDEMARK_PLAN_NOT_FIXED UINT64_MAX
/** Room for every message; a shorter buffer gets the beginning. */
#define TIDEMARK_PLAN_MESSAGE_BYTES 256

/** What `tidemark_plan_make` returns: an int32_t. */
enum {
  TIDEMARK_PLAN_OK = 0,        /**< there is a plan */
  TIDEMARK_PLAN_INVALID = 1,   /**< an argument is wrong */
  TIDEMARK_PLAN_NO_MEMORY = 2, /**< there is too little memory for the search */
  TIDEMARK_PLAN_CANCELLED = 3, /**< `on_progress` ended the search */
  TIDEMARK_PLAN_FAILED = 4     /**< another error, which the message names */
};

/** What is known of lower plans than this one: a uint32_t. */
enum {
  TIDEMARK_PLAN_OPEN = 0,     /**< there may be one */
  TIDEMARK_PLAN_AT_BOUND = 1, /**< there is none, because the height is the lower bound */
  TIDEMARK_PLAN_PROVEN = 2    /**< there is none: the height is the proven bound, above the lower bound */
};

/**
 * What is to be placed: arrays with an entry for each block, and which blocks may not share bytes. Either
 * by `begin` and `end`: two blocks that are live at one moment. Or by `conflicts`, where several streams
 * run at once: `begin` and `end` are null then, `conflicts` is not, and only the blocks that it names are
 * in conflict. There is no backtracking then, and the bound is the heaviest clique that is found: no plan
 * above it is known to be the lowest.
 *
 * Sizes, each rounded up to its alignment, have 2^62 bytes together at most, and fixed blocks end there
 * at the latest.
 */
typedef struct tidemark_plan_blocks {
  uint64_t struct_size;         /**< sizeof(tidemark_plan_blocks) */
  uint64_t count;               /**< of blocks; 0 is a plan of height 0 */
  uint64_t const* begin;        /**< the first moment at which a block is live: any numbers that grow */
  uint64_t const* end;          /**< the first moment at which it no longer is; greater than `begin` */
  uint64_t const* size;         /**< bytes, may be 0 */
  uint64_t const* alignment;    /**< powers of two, of which the offset is a multiple; null: 1 */
  uint64_t const* fixed_offset; /**< where a block must lie, or TIDEMARK_PLAN_NOT_FIXED; null: for all */
  uint64_t conflict_count;      /**< of pairs */
  uint64_t const* conflicts;    /**< pairs of blocks, counted from 0: 2 * conflict_count numbers */
} tidemark_plan_blocks;

#define TIDEMARK_PLAN_BLOCKS_INIT {sizeof(tidemark_plan_blocks), 0, NULL, NULL, NULL, NULL, NULL, 0, NULL}

/** How far a search is. */
typedef struct tidemark_plan_progress {
  uint64_t struct_size;  /**< as the library knows it: whether it has the members that were added later */
  uint64_t height;       /**< bytes, of the best plan so far; 0 before the first one */
  uint64_t lower_bound;  /**< bytes, below which no plan is */
  uint64_t nodes;        /**< blocks placed so far, failed tries included */
  uint64_t elapsed_ns;   /**< since the search began */
  uint64_t proven_bound; /**< bytes: the search has shown that no plan is lower; >= lower_bound */
} tidemark_plan_progress;

/**
 * How a plan is searched for. The first limit that is reached ends the search, but the first order is
 * always finished. More nodes never give a worse plan, nor does more time where `begin` and `end` are
 * given. Where `node_limit` alone ends it, the plan is always the same: `time_limit_ns` must be
 * TIDEMARK_PLAN_NO_LIMIT then.
 */
typedef struct tidemark_plan_options {
  uint64_t struct_size;   /**< sizeof(tidemark_plan_options) */
  uint64_t alignment;     /**< of every offset and of the height, besides the blocks' own; a power of two */
  uint64_t time_limit_ns; /**< ends the search then, or some milliseconds later; or TIDEMARK_PLAN_NO_LIMIT */
  uint64_t node_limit;    /**< ends it after this many placed blocks, too; or TIDEMARK_PLAN_NO_LIMIT */
  /** A plan of at most this many bytes ends it; 0: one that cannot be lower. Where none fits, it goes on until
   *  the plan is known to be the lowest, or to the limits: `on_progress` can end it when `proven_bound` is above the
   *  capacity. */
  uint64_t capacity;
  uint64_t seed;          /**< of the random choices */
  uint64_t exact;         /**< 1: searches until no plan can be lower; 0: keeps each try short */
  /** Called by the thread that plans, at each lower plan and every few milliseconds at most. Returns 0 to go
   *  on; otherwise the search ends with TIDEMARK_PLAN_CANCELLED. Must return: no longjmp, no exception. */
  int (*on_progress)(void* context, tidemark_plan_progress const* now);
  void* context; /**< what `on_progress` gets */
} tidemark_plan_options;

/** One second at most, bytes without alignment. What a null pointer to options means, too. */
#define TIDEMARK_PLAN_OPTIONS_INIT \
  {sizeof(tidemark_plan_options), 1, 1000000000, TIDEMARK_PLAN_NO_LIMIT, 0, 0, 1, NULL, NULL}

/** What a plan is like. `lower_bound <= proven_bound <= height`; all three are multiples of the options'
 *  alignment. */
typedef struct tidemark_plan_result {
  uint64_t struct_size;  /**< sizeof(tidemark_plan_result) */
  uint64_t height;       /**< bytes of the memory that holds all blocks */
  uint64_t lower_bound;  /**< bytes: what is live at once, or the end of a fixed block */
  uint64_t proven_bound; /**< bytes: the search has shown that no plan is lower */
  uint64_t nodes;        /**< blocks that the search placed, failed tries included */
  uint64_t elapsed_ns;   /**< that it took */
  uint32_t proof;        /**< TIDEMARK_PLAN_OPEN, _AT_BOUND or _PROVEN */
  uint32_t reserved;     /**< 0 */
} tidemark_plan_result;

#define TIDEMARK_PLAN_RESULT_INIT {sizeof(tidemark_plan_result), 0, 0, 0, 0, 0, 0, 0}

/**
 * Places blocks in as little memory as is found within the limits. tidemark's `make_plan` says how, and
 * what it costs. It takes up to 1.5 MiB of the calling thread's stack.
 *
 * @param blocks   must not be null.
 * @param options  null: TIDEMARK_PLAN_OPTIONS_INIT.
 * @param offsets  gets the offset of each block, in bytes; may be null if there are none.
 * @param result   gets height, bound and proof; may be null.
 * @param message  gets a sentence that says what is wrong and names the block by its number, or "" if nothing
 *                 is; may be null.
 * @return a status. If it is not TIDEMARK_PLAN_OK, `offsets` and `result` are what they were.
 */
TIDEMARK_PLAN_API int32_t tidemark_plan_make(tidemark_plan_blocks const* blocks,
                                             tidemark_plan_options const* options, uint64_t* offsets,
                                             tidemark_plan_result* result, char* message,
                                             size_t message_bytes);

/** TIDEMARK_PLAN_ABI_VERSION of the library. */
TIDEMARK_PLAN_API uint32_t tidemark_plan_abi_version(void);

/** The version of tidemark that the library is of, such as "0.2.0": a literal. */
TIDEMARK_PLAN_API char const* tidemark_plan_version(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
