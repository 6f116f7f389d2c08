// GPU front of the codecs: one thread codes one block, a warp moves the 4 * rate words that 32 blocks make.
// Whole blocks only (n a multiple of 4) and vectors aligned to 16 bytes; the wire is aligned to 4 bytes and its pad to
// 64 bits is the caller's. All rates of one word count share a kernel: rate 4..8 _1, 9..16 _2, 17..24 _3, 25..32 _4.
// Blocks of threads are one-dimensional, of a multiple of 32 threads, at most 256.
#include "../hb_zfp1.h"

typedef unsigned long long hb_u64;

#define WARPS 8

__device__ __forceinline__ void fill(hb_zfp1_tables &t) {
  for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) {
    if (i < 80) t.enc[i] = (hb_u16)hb_zfp1_enc_entry(i);
    t.dec[i] = (hb_u16)hb_zfp1_dec_entry(i);
  }
  __syncthreads();
}

template <int NW> __device__ __forceinline__ void encode(const float4 *x, hb_u64 blocks, hb_u32 rate, hb_u32 *wire) {
  __shared__ hb_zfp1_tables t;
  __shared__ hb_u32 stage[WARPS][32 * NW];
  fill(t);
  const hb_u32 mb = 4 * rate, lane = threadIdx.x & 31u, words = 4 * rate;  // 32 blocks of mb bits are mb words
  hb_u32 *bits = stage[threadIdx.x >> 5];
  const hb_u64 warps = (hb_u64)gridDim.x * (blockDim.x >> 5), total = (blocks * mb + 31) / 32;
  for (hb_u64 at = blockIdx.x * (hb_u64)(blockDim.x >> 5) + (threadIdx.x >> 5); at * 32 < blocks; at += warps) {
    const hb_u64 block = at * 32 + lane;
    hb_u32 w[NW + 1];
    for (int k = 0; k <= NW; k++) w[k] = 0;
    if (block < blocks) {
      float4 v = x[block];
      float f[4] = {v.x, v.y, v.z, v.w};
      hb_zfp1_encode<hb_u32, NW>(f, mb, w, t);
    }
    for (hb_u32 k = lane; k < words; k += 32) bits[k] = 0;
    __syncwarp();
    const hb_u32 first = lane * mb / 32, shift = lane * mb % 32;
    for (int k = 0; k <= NW; k++) {
      hb_u32 part = __funnelshift_l(k ? w[k - 1] : 0u, w[k], shift);
      if (part) atomicOr(&bits[first + k], part);  // neighbours share a word
    }
    __syncwarp();
    for (hb_u32 k = lane; k < words; k += 32)
      if (at * words + k < total) wire[at * words + k] = bits[k];
    __syncwarp();
  }
}

template <int NW, bool ADD>
__device__ __forceinline__ void decode(const hb_u32 *wire, hb_u64 blocks, hb_u32 rate, float4 *y) {
  __shared__ hb_zfp1_tables t;
  __shared__ hb_u32 stage[WARPS][32 * NW + 1];
  fill(t);
  const hb_u32 mb = 4 * rate, lane = threadIdx.x & 31u, words = 4 * rate;
  hb_u32 *bits = stage[threadIdx.x >> 5];
  const hb_u64 warps = (hb_u64)gridDim.x * (blockDim.x >> 5), total = (blocks * mb + 31) / 32;
  for (hb_u64 at = blockIdx.x * (hb_u64)(blockDim.x >> 5) + (threadIdx.x >> 5); at * 32 < blocks; at += warps) {
    const hb_u64 block = at * 32 + lane;
    for (hb_u32 k = lane; k <= words; k += 32) bits[k] = k < words && at * words + k < total ? wire[at * words + k] : 0;
    __syncwarp();
    const hb_u32 first = lane * mb / 32, shift = lane * mb % 32;
    hb_u32 w[NW];
    for (int k = 0; k < NW; k++) {
      const hb_u32 next = first + k + 1 <= words ? first + k + 1 : words;
      w[k] = first + k < words ? __funnelshift_r(bits[first + k], bits[next], shift) : 0;
    }
    if (mb & 31u) w[NW - 1] &= (1u << (mb & 31u)) - 1u;
    if (block < blocks) {
      float f[4];
      hb_zfp1_decode<hb_u32, NW>(w, mb, f, t);
      float4 v = make_float4(f[0], f[1], f[2], f[3]);
      if (ADD) {
        const float4 old = y[block];
        v = make_float4(old.x + v.x, old.y + v.y, old.z + v.z, old.w + v.w);
      }
      y[block] = v;
    }
    __syncwarp();
  }
}

#define KERNELS(NW)                                                                                             \
  extern "C" __global__ void hb_zfp1_encode_##NW(const float4 *x, hb_u64 blocks, hb_u32 rate, hb_u32 *wire) {   \
    encode<NW>(x, blocks, rate, wire);                                                                          \
  }                                                                                                             \
  extern "C" __global__ void hb_zfp1_decode_##NW(const hb_u32 *wire, hb_u64 blocks, hb_u32 rate, float4 *y) {   \
    decode<NW, false>(wire, blocks, rate, y);                                                                   \
  }                                                                                                             \
  extern "C" __global__ void hb_zfp1_add_##NW(const hb_u32 *wire, hb_u64 blocks, hb_u32 rate, float4 *y) {      \
    decode<NW, true>(wire, blocks, rate, y);                                                                    \
  }
KERNELS(1)
KERNELS(2)
KERNELS(3)
KERNELS(4)
