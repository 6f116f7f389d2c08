// What the shared library hands out: one table of functions for each instruction set it was compiled for.
// Pointers need no alignment. Functions keep no state and may run in any number of threads at once.
#pragma once
#include <stdint.h>

#define HB_ABI 1

extern "C" {
struct hb_kernels {
  uint32_t abi;
  uint32_t lanes;    // blocks that one call of a block function codes
  const char *name;  // "avx512", "avx2", "sse2" or "generic"
  // n float32 into ceil(ceil(n/4) * 4 * rate / 64) * 8 bytes; rate 4..32
  void (*zfp1_encode)(const void *x, uint64_t n, uint32_t rate, void *wire);
  // add: 0 store, 1 add to what out holds
  void (*zfp1_decode)(const void *wire, uint64_t n, uint32_t rate, void *out, uint32_t add);
  // `bytes` bytes into at most 4 * words + 2 * chunks bytes, words = ceil(bytes/4), chunks = ceil(words/1024);
  // dim 1..32; returns the bytes used
  uint64_t (*mpc_encode)(const void *x, uint64_t bytes, uint32_t dim, void *wire);
  // add: 0 store, 1 add as float32, 2 add as float64; returns 0, or 1 for a malformed container, of which the chunks
  // before the fault are already in out
  uint32_t (*mpc_decode)(const void *wire, uint64_t wire_bytes, uint64_t bytes, uint32_t dim, void *out, uint32_t add);
};

// The best table that this processor runs (name null), the one of that name, or null if it cannot run here.
const hb_kernels *hb_kernels_for(const char *name);
}
