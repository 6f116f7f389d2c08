// kernels/gpu/gpu.cu for one family, parameter and type as functions of the CPU.
#include "cuda_emulator.h"
#include "gpu.cu"

#define LAUNCH(call) emulate(grid, HB_THREADS, backwards, [=] { call; })
extern "C" {
void run_encode(unsigned grid, bool backwards, const void *x, hb_u64 n, hb_byte *wire, float *residual, hb_u64 seed) {
  LAUNCH(hb_encode(x, n, wire, residual, seed));
}
void run_decode(unsigned grid, bool backwards, const hb_byte *wire, hb_u64 n, void *out) {
  LAUNCH(hb_decode(wire, n, out));
}
void run_decode_add(unsigned grid, bool backwards, const hb_byte *wire, hb_u64 n, void *out) {
  LAUNCH(hb_decode_add(wire, n, out));
}
void run_decode_add_encode(unsigned grid, bool backwards, const hb_byte *wire, const void *local, hb_u64 n, hb_byte *out,
                           hb_u64 seed) {
  LAUNCH(hb_decode_add_encode(wire, local, n, out, seed));
}
}
