// Counter-based random words: word i is a hash of i and the seed, so any processor can compute it independently.
// Correlated noise: processes share the lower 48 bits of a seed, and therefore all words. The upper 16 bits are an
// offset of the process, which is added to each noise of 16 bits modulo 2^16. With offsets i/p * 2^16, the noises of p
// processes for one value are evenly spaced, and each is still uniformly distributed.
#pragma once
#include "hb_lane.h"

struct hb_key {
  hb_u32 first, second;
};

// A 32-bit integer hash in which each input bit changes each output bit with a probability near one half.
template <class U> HB_FN U hb_mix(U x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}
// for the 2^32 counters that share their upper half
HB_FN hb_key hb_key_of(unsigned long long seed, hb_u32 upper) {
  hb_u32 a = hb_mix<hb_u32>((hb_u32)seed + 0x9e3779b9u), b = hb_mix<hb_u32>((hb_u32)(seed >> 32) ^ a);
  hb_key key = {hb_mix<hb_u32>(a ^ upper), hb_mix<hb_u32>(b + upper * 0x9e3779b9u)};
  return key;
}
HB_FN unsigned long long hb_shared_seed(unsigned long long seed) { return seed & 0xffffffffffffull; }
HB_FN hb_u32 hb_noise_offset(unsigned long long seed) { return (hb_u32)(seed >> 48); }
template <class U> HB_FN U hb_random(U counter, hb_key key) {
  return hb_mix(hb_mix(counter ^ key.first) + key.second);
}
