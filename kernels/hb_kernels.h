// Interface of the shared library: one table of functions per compiled instruction set. Pointers need no alignment.
// Functions are stateless and may run concurrently in any number of threads.
#pragma once
#include <stdint.h>

#include "hb_names.h"

#define HB_ABI 8

#define HB_MALFORMED (~0ull)

struct hb_ops {
  // maximum number of wire bytes for n values
  uint64_t (*wire_bytes)(uint64_t param, uint32_t type, uint64_t n);
  // Encodes n values to the wire, which has space for the maximum size; returns the bytes used. residual: null, or n
  // float32. If given, the sum of residual and values is encoded, and the residual receives the unsent part (0 if it is
  // not finite). seed: for stochastic rounding.
  uint64_t (*encode)(uint64_t param, uint32_t type, const void *x, uint64_t n, void *wire, float *residual,
                     uint64_t seed);
  // Decodes n values of `type` from wire_bytes bytes, stored as out_type, or added to `out` in that type. Returns 0, or
  // 1 if the bytes are not a stream of n such values. In this case, `out` may contain values decoded before the error.
  uint32_t (*decode)(uint64_t param, uint32_t type, const void *wire, uint64_t wire_bytes, uint64_t n, void *out,
                     uint32_t out_type, uint32_t add);
  // Encodes the float32 sum of the decoded wire and of `local`, both n values of `type`, to another wire. Returns the
  // bytes used, or HB_MALFORMED.
  uint64_t (*decode_add_encode)(uint64_t param, uint32_t type, const void *wire, uint64_t wire_bytes,
                                const void *local, uint64_t n, void *out, uint64_t seed);
};

// Parameters of a step of AdamW. keep: factor of weights that decay; factor: factor of the gradients, for clipping;
// take1, keep2, take2: 1 - beta1, beta2 and 1 - beta2; grown: 1 / sqrt(1 - beta2^t); size: lr / (1 - beta1^t).
struct hb_adamw {
  double keep, factor, take1, keep2, take2, grown, eps, size;
  const uint64_t *ends;  // ends of runs of elements, alternately without and with decay, up to the array's end
};
// Arrays of float32 or float64, aligned to their values.
struct hb_flat {
  // Updates elements from `from` to `to`. gradient: null leaves the moments unchanged.
  void (*adamw)(uint32_t type, const hb_adamw *how, void *master, const void *gradient, void *first, void *second,
                uint64_t from, uint64_t to);
  double (*squares)(uint32_t type, const void *x, uint64_t n);  // sum of squares in float64
};
// Arrays of 16-bit floats of `type`, and arrays of float32. Pointers to float32 are aligned.
struct hb_halves {
  // Rounds n float32. residual: null, or n float32 to which the rounding errors are added if they are finite.
  void (*narrow)(uint32_t type, const float *x, uint64_t n, void *out, float *residual);
  void (*widen)(uint32_t type, const void *x, uint64_t n, float *out, uint32_t add);  // stored, or added if `add`
  void (*add)(uint32_t type, const void *x, void *onto, uint64_t n);  // sums are computed in float32 and rounded
};

extern "C" {
struct hb_kernels {
  uint32_t abi;
  uint32_t lanes;    // values that one vector holds
  const char *name;  // "avx512", "avx2", "sse2" or "generic"
  const hb_ops *ops[HB_FAMILIES];
  const hb_flat *flat;
  const hb_halves *halves;
};

// Returns the named table, or the best table for this processor if name is null. Returns null if the named table is not
// supported here.
const hb_kernels *hb_kernels_for(const char *name);
}
