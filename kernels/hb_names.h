// Numeric IDs of value types and codec families. The IDs are macros, because the GPU front end is compiled for one
// type and one family, selected on the command line.
#pragma once

// Value types. Only lossless codecs support HB_F64 and HB_BYTES (n bytes without addition).
#define HB_F32 0
#define HB_F16 1
#define HB_BF16 2
#define HB_F64 3
#define HB_BYTES 4

// Codec families, and the meaning of `param` for each family.
#define HB_ZFP 0          // rate, 4..32
#define HB_MPC 1          // dim, 1..32
#define HB_XPK 2          // 0
#define HB_FP16 3         // 0
#define HB_BF16_CAST 4    // 0
#define HB_FP8_E4M3 5     // 0
#define HB_FP8_E5M2 6     // 0
#define HB_INT8 7         // block length, a power of two, 32..1024; plus HB_STOCHASTIC, HB_CORRELATED
#define HB_INT4 8         // the same
#define HB_SIGN 9         // block length, a power of two, 32..1024
#define HB_TOPK 10        // number of values to keep, at most n
#define HB_THRESHOLD 11   // bits of a float32, not negative: larger magnitudes are kept
#define HB_ROWSPARSE 12   // values per row, at least 1
#define HB_2OF4 13        // 0
#define HB_GROUPED 14     // block length, 16 or 32; plus bits << 16, HB_UNEVEN, HB_STOCHASTIC, HB_CORRELATED
#define HB_MX 15          // element HB_E..., plus scale rule << 8
#define HB_NVFP4 16       // 0
#define HB_FAMILIES 17
// Bits 40 to 44 of a parameter may specify a rotation (hb_rotate.h).
#define HB_STOCHASTIC (1ull << 32)
#define HB_UNEVEN (1ull << 33)
#define HB_CORRELATED (1ull << 34)  // only with HB_STOCHASTIC
#define HB_E2M1 0
#define HB_E2M3 1
#define HB_E3M2 2
#define HB_E4M3 3
#define HB_E5M2 4
#define HB_FLOOR 0
#define HB_CEIL 1
#define HB_EVEN 2
#define HB_RCEIL 3
