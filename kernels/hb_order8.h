// Tables for compressing and expanding 8 lanes or bytes under a mask.
#pragma once

// For mask m, at[m][i] is the source of position i of the result.
struct hb_order8 {
  unsigned char at[256][8];
};
constexpr hb_order8 hb_make_compress8() {
  hb_order8 t{};
  for (int m = 0; m < 256; m++) {
    int n = 0;
    for (int i = 0; i < 8; i++)
      if (m >> i & 1) t.at[m][n++] = (unsigned char)i;
  }
  return t;
}
constexpr hb_order8 hb_make_expand8() {
  hb_order8 t{};
  for (int m = 0; m < 256; m++) {
    int n = 0;
    for (int i = 0; i < 8; i++)
      if (m >> i & 1) t.at[m][i] = (unsigned char)n++;
  }
  return t;
}
alignas(64) static constexpr hb_order8 hb_compress8 = hb_make_compress8();
alignas(64) static constexpr hb_order8 hb_expand8 = hb_make_expand8();
