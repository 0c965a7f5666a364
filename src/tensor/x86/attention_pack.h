/* Operands of the attention kernels: rows of act or f32 elements become packed rows of `units`.
 *
 * A unit is the 32 bits that one lane multiplies at a time: one f32, or (ATTN_PAIR 2) two bf16 for
 * vdpbf16ps. Packed rows are padded with zeros to `width` elements. Three layouts of the same
 * rows:
 *
 *   rows   [n][width]              elements of a row side by side
 *   cols   [width/PAIR][lanes]     transposed: a vector holds one unit of many rows
 *   pairs  [n/PAIR][width]         units of PAIR adjacent rows (f32: as rows)
 *
 * Included after vec.h; code that depends on ATTN_PAIR is in attention_tile.h. */
#ifndef KVF_ATTENTION_PACK_H
#define KVF_ATTENTION_PACK_H

#include "attention_int.h"
#include "vec_act.h"
#include "vec_exp.h"
#include "vec_sums.h"

/* Loads elements d .. d + n - 1 of row i (VF_LANES at most) as f32; zeros in the other lanes. */
VEC_INLINE vf load_part(const kvf__attn_rows *rows, int64_t i, int64_t d, int64_t n)
{
    return act_load(rows->dtype != KVF__F32, rows->base, rows->at + i * rows->stride + d, n);
}

/* Stores v's first n lanes (all if n >= VF_LANES) as elements d .. of row i. */
VEC_INLINE void store_part(const kvf__attn_rows *to, int64_t i, int64_t d, vf v, int64_t n)
{
    act_store(to->dtype != KVF__F32, to->base, to->at + i * to->stride + d, v, n);
}

/* Computes C [rows, vectors] = or += A B, summed over `units`. rows is a multiple of TILE_ROWS, the
 * ld are in units. */
typedef struct attn_product {
    int64_t rows, units;
    int vectors; /* vectors of C and B: 1 or 2 */
    bool add;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
} attn_product;

enum {
    TILE_ROWS = VF_LANES / 2,
    KEY_STEP = 8,        /* step of skipping and padding keys, a multiple of every TILE_ROWS */
    BLOCK = 2 * VF_LANES /* queries of a block, side by side in two vectors */
};

static inline int64_t attn_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t attn_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Prefetches a row. Rows are about a page apart, where no hardware prefetcher helps: without this,
 * packing and stores wait for memory at every row. */
enum { AHEAD = 12 }; /* rows */
VEC_INLINE void prefetch_row(const kvf__attn_rows *rows, int64_t i, int64_t D, int write)
{
    const int64_t size = rows->dtype == KVF__F32 ? 4 : 2;
    const char *from = (const char *)rows->base + (rows->at + i * rows->stride) * size;
    for (int64_t byte = 0; byte < D * size; byte += 64)
        if (write)
            __builtin_prefetch(from + byte, 1);
        else
            __builtin_prefetch(from + byte, 0);
}

static void prefetch_rows(const kvf__attn_rows *rows, int64_t n, int64_t D, int write)
{
    for (int64_t i = 0; i < n; i++)
        prefetch_row(rows, i, D, write);
}

/* Transposes n rows of `units`, given by their stride, into dst [units][ldd]. units and n are
 * multiples of VF_LANES. */
static void pack_cols(float *dst, int64_t ldd, const float *rows, int64_t stride, int64_t n,
                      int64_t units)
{
    for (int64_t i = 0; i < n; i += VF_LANES)
        for (int64_t u = 0; u < units; u += VF_LANES) {
            vf r[VF_LANES];
            for (int k = 0; k < VF_LANES; k++)
                r[k] = vf_load(rows + (i + k) * stride + u);
            transpose(r);
            for (int k = 0; k < VF_LANES; k++)
                vf_store(dst + (u + k) * ldd + i, r[k]);
        }
}

/* Converts one vector of columns src [D][lds], times `by`, to n rows of D elements. */
static void unpack_cols(const kvf__attn_rows *to, const float *src, int64_t lds, vf by, int64_t n,
                        int64_t D)
{
    for (int64_t d = 0; d < D; d += VF_LANES) {
        vf r[VF_LANES];
        for (int k = 0; k < VF_LANES; k++)
            r[k] = vf_load(src + (d + k) * lds) * by;
        transpose(r);
        for (int64_t i = 0; i < n; i++)
            store_part(to, i, d, r[i], D - d);
    }
}

#endif
