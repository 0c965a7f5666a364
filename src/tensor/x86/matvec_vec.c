/* The product of matvec.h on the vectors of vec.h; compiled once per instruction set (KVF_LEVEL).
 *
 * One row of x: four rows of W at a time are unpacked in registers and multiplied. More rows: four
 * rows of W are unpacked into a panel (f32, or bf16 for vdpbf16ps), and tiles of 4 x TILE sums, one
 * register each, pass over it. A sum stays in one register, and its lanes are added at the end,
 * several sums together. In f32 its order is the same either way, independent of other sums. */
#include "kernels_int.h"
#include "level.h"
#include "matvec_blocks.h"
#include "vec_sums.h"

enum { TILE = VF_LANES / KVF__MATVEC_ROWS }; /* rows of x: 4 or 2 */

/* Unpacks the part after the last whole one, padded with zeros; plain types only. */
static void tail_of(const kvf__matvec_call *call, const uint8_t *row, vf out[VECTORS])
{
    const int64_t whole = call->K / PART * PART;
    float tail[PART] = {0};
    kvf__to_f32(call->dtype, row + kvf__matvec_row_bytes(call->dtype, whole), tail,
                call->K - whole);
    for (int v = 0; v < VECTORS; v++)
        out[v] = vf_load(tail + v * VF_LANES);
}

/* Calls f(dtype, ...) with the type as a constant; does nothing for unsupported types. */
#define TYPE_CASE(type, f, ...)                                                                    \
    case type:                                                                                     \
        f(type, __VA_ARGS__);                                                                      \
        break;
#define FOR_TYPE(dtype, ...)                                                                       \
    switch (dtype) {                                                                               \
        TYPE_CASE(KVF__F32, __VA_ARGS__)                                                           \
        TYPE_CASE(KVF__F16, __VA_ARGS__)                                                           \
        TYPE_CASE(KVF__BF16, __VA_ARGS__)                                                          \
        TYPE_CASE(KVF__Q4_0, __VA_ARGS__)                                                          \
        TYPE_CASE(KVF__Q4_1, __VA_ARGS__)                                                          \
        TYPE_CASE(KVF__Q5_0, __VA_ARGS__)                                                          \
        TYPE_CASE(KVF__Q5_1, __VA_ARGS__)                                                          \
        TYPE_CASE(KVF__Q8_0, __VA_ARGS__)                                                          \
        TYPE_CASE(KVF__Q4_K, __VA_ARGS__)                                                          \
        TYPE_CASE(KVF__Q5_K, __VA_ARGS__)                                                          \
        TYPE_CASE(KVF__Q6_K, __VA_ARGS__)                                                          \
    default:                                                                                       \
        break;                                                                                     \
    }

/* Prefetches the next rows of W. The hardware prefetcher stops while a panel is used for all of x,
 * and follows four rows at once poorly. Any address is allowed. */
VEC_INLINE void prefetch(const uint8_t *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)from + at, _MM_HINT_T0);
}

/* ---- one row of x ---------------------------------------------------------------------------- */

/* Adds the products of row[i] with x to sum[i], lane by lane. */
VEC_INLINE void dot_rows(kvf__dtype dtype, const kvf__matvec_call *call,
                         const uint8_t *const row[KVF__MATVEC_ROWS], vf out[KVF__MATVEC_ROWS])
{
    const int64_t parts = call->K / PART, rest = call->K % PART;
    const float *x = call->x;
    vf sum[KVF__MATVEC_ROWS], w[VECTORS];
    VEC_UNROLL for (int i = 0; i < KVF__MATVEC_ROWS; i++) sum[i] = vf_zero();
    for (int64_t p = 0; p < parts; p++, x += PART)
        VEC_UNROLL for (int i = 0; i < KVF__MATVEC_ROWS; i++)
        {
            row_part(dtype, row[i], p, w);
            VEC_UNROLL for (int v = 0; v < VECTORS; v++)
                sum[i] = vf_fma(w[v], vf_load(x + v * VF_LANES), sum[i]);
        }
    for (int i = 0; rest && i < KVF__MATVEC_ROWS; i++) {
        tail_of(call, row[i], w);
        for (int v = 0; v < VECTORS; v++) {
            const int64_t left = rest - v * VF_LANES;
            sum[i] = vf_fma(w[v], vf_load_upto(x + v * VF_LANES, left > 0 ? left : 0), sum[i]);
        }
    }
    VEC_UNROLL for (int i = 0; i < KVF__MATVEC_ROWS; i++) out[i] = sum[i];
}

/* Computes y [n] of one row of x; the last row of W is repeated to fill the group. */
VEC_INLINE void dots(kvf__dtype dtype, const kvf__matvec_call *call, size_t bytes)
{
    for (int64_t first = 0; first < call->n; first += VF_LANES) {
        const int64_t left = call->n - first < VF_LANES ? call->n - first : VF_LANES;
        const uint8_t *rows = (const uint8_t *)call->w + (size_t)first * bytes;
        vf sums[VF_LANES];
        for (int64_t i = 0; i < VF_LANES; i += KVF__MATVEC_ROWS) {
            const uint8_t *row[KVF__MATVEC_ROWS];
            for (int64_t r = 0; r < KVF__MATVEC_ROWS; r++)
                row[r] = rows + (size_t)(i + r < left ? i + r : left - 1) * bytes;
            prefetch(rows + (size_t)(i + KVF__MATVEC_ROWS) * bytes, KVF__MATVEC_ROWS * bytes);
            dot_rows(dtype, call, row, sums + i);
        }
        float *y = call->y + first;
        vf made = lane_sums(sums);
        if (call->add) made = vf_load_upto(y, left) + made;
        vf_store_upto(y, made, left);
    }
}

/* ---- several rows of x ----------------------------------------------------------------------- */

/* Storage of a panel and its rows of x: `units` vectors a row. */
typedef struct panel {
    bool bf16;
    int64_t units;
    const char *w; /* [KVF__MATVEC_ROWS][units] vectors */
    const char *x; /* row m at x + m * x_stride bytes */
    int64_t x_stride;
} panel;

VEC_INLINE void store_part(bool bf16, char *to, int64_t p, const vf w[VECTORS])
{
#if defined(__AVX512BF16__)
    if (bf16) {
        _mm512_storeu_si512(to + p * PART * 2, (__m512i)_mm512_cvtne2ps_pbh(w[1], w[0]));
        return;
    }
#endif
    (void)bf16;
    for (int v = 0; v < VECTORS; v++)
        vf_store((float *)(void *)to + p * PART + v * VF_LANES, w[v]);
}

/* Unpacks one row of W, padded with zeros. */
VEC_INLINE void unpack(kvf__dtype dtype, const kvf__matvec_call *call, const uint8_t *row,
                       bool bf16, char *to)
{
    const int64_t parts = call->K / PART;
    vf w[VECTORS];
    for (int64_t p = 0; p < parts; p++) {
        row_part(dtype, row, p, w);
        store_part(bf16, to, p, w);
    }
    if (call->K % PART) {
        tail_of(call, row, w);
        store_part(bf16, to, parts, w);
    }
}

static void unpack_row(const kvf__matvec_call *call, const uint8_t *row, bool bf16, char *to)
{
    if (bf16)
        FOR_TYPE(call->dtype, unpack, call, row, true, to)
    else
        FOR_TYPE(call->dtype, unpack, call, row, false, to)
}

VEC_INLINE vf multiply(bool bf16, vf a, vf b, vf sum)
{
#if defined(__AVX512BF16__)
    if (bf16)
        return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a),
                                (__m512bh)_mm512_castps_si512(b));
#endif
    (void)bf16;
    return vf_fma(a, b, sum);
}

/* Multiplies TILE rows of x, given by their starts, with the panel: out [TILE][ROWS]. */
VEC_INLINE void tile(bool bf16, const panel *p, const char *const x[TILE], float *out)
{
    const int64_t step = VF_LANES * 4, row = p->units * step;
    vf sum[VF_LANES];
    VEC_UNROLL for (int i = 0; i < VF_LANES; i++) sum[i] = vf_zero();
    for (int64_t at = 0; at < row; at += step) {
        vf w[KVF__MATVEC_ROWS];
        VEC_UNROLL for (int i = 0; i < KVF__MATVEC_ROWS; i++)
            w[i] = vf_load((const float *)(const void *)(p->w + i * row + at));
        VEC_UNROLL for (int m = 0; m < TILE; m++)
        {
            vf xm = vf_load((const float *)(const void *)(x[m] + at));
            VEC_UNROLL for (int i = 0; i < KVF__MATVEC_ROWS; i++) sum[m * KVF__MATVEC_ROWS + i] =
                multiply(bf16, w[i], xm, sum[m * KVF__MATVEC_ROWS + i]);
        }
    }
    vf_store(out, lane_sums(sum));
}

/* Stores rows m .. of y at columns first .., of which `rows` exist. */
static void put_tile(const kvf__matvec_call *call, int64_t m, int64_t first, int64_t rows,
                     const float *sums)
{
    for (int64_t t = 0; t < TILE && m + t < call->M; t++) {
        float *y = call->y + (m + t) * call->ldy + first;
        const float *from = sums + t * KVF__MATVEC_ROWS;
        for (int64_t i = 0; i < rows; i++)
            y[i] = call->add ? y[i] + from[i] : from[i];
    }
}

static void multiply_panel(const kvf__matvec_call *call, const panel *p, int64_t first,
                           int64_t rows)
{
    for (int64_t m = 0; m < call->M; m += TILE) {
        const char *x[TILE];
        float sums[VF_LANES];
        for (int64_t t = 0; t < TILE; t++)
            x[t] = p->x + (m + t < call->M ? m + t : m) * p->x_stride;
        if (p->bf16)
            tile(true, p, x, sums);
        else
            tile(false, p, x, sums);
        put_tile(call, m, first, rows, sums);
    }
}

/* Prepares rows of x for the tiles: converted, or padded where the last vector would read past the
 * end. */
static void lay_out_x(const kvf__matvec_call *call, panel *p, char *to)
{
    const int64_t padded = kvf__matvec_padded(call->K);
    p->x = (const char *)call->x;
    p->x_stride = call->ldx * 4;
    if (!p->bf16 && padded == call->K) return;
    p->x = to;
    p->x_stride = padded * (p->bf16 ? 2 : 4);
    for (int64_t m = 0; m < call->M; m++, to += p->x_stride) {
        const float *row = call->x + m * call->ldx;
        for (int64_t k = 0; k < padded; k += VF_LANES) {
            const int64_t left = call->K - k;
            act_store(p->bf16, to, k, vf_load_upto(row + k, left > 0 ? left : 0), VF_LANES);
        }
    }
}

/* Unpacks so many rows of W, and zeroes the rest of the panel. */
static void fill_panel(const kvf__matvec_call *call, const uint8_t *row, int64_t rows, bool bf16,
                       char *to)
{
    const int64_t size = kvf__matvec_padded(call->K) * (bf16 ? 2 : 4);
    for (int64_t i = 0; i < rows; i++, row += kvf__matvec_row_bytes(call->dtype, call->K))
        unpack_row(call, row, bf16, to + i * size);
    memset(to + rows * size, 0, (size_t)((KVF__MATVEC_ROWS - rows) * size));
}

static void multiply_rows(const kvf__matvec_call *call, size_t bytes)
{
    const int64_t padded = kvf__matvec_padded(call->K);
    const uint8_t *row = call->w;
    char *w = call->scratch;
    panel p = {0};
#if defined(__AVX512BF16__)
    p.bf16 = call->bf16;
#endif
    const int64_t size = padded * (p.bf16 ? 2 : 4);
    p.units = size / (VF_LANES * 4);
    lay_out_x(call, &p, w + KVF__MATVEC_ROWS * padded * 4);
    const bool as_it_is = call->dtype == KVF__F32 && !p.bf16 && padded == call->K;
    for (int64_t first = 0; first < call->n; first += KVF__MATVEC_ROWS) {
        int64_t rows = call->n - first < KVF__MATVEC_ROWS ? call->n - first : KVF__MATVEC_ROWS;
        p.w = w;
        if (as_it_is && rows == KVF__MATVEC_ROWS)
            p.w = (const char *)row;
        else
            fill_panel(call, row, rows, p.bf16, w);
        row += (size_t)rows * bytes;
        prefetch(row, KVF__MATVEC_ROWS * bytes);
        multiply_panel(call, &p, first, rows);
    }
}

static void run(const kvf__matvec_call *call)
{
    const size_t bytes = kvf__matvec_row_bytes(call->dtype, call->K);
    if (call->dtype == KVF__F64)
        kvf__matvec_ref.run(call);
    else if (call->M == 1)
        FOR_TYPE(call->dtype, dots, call, bytes)
    else
        multiply_rows(call, bytes);
}

const kvf__matvec KVF__LEVEL(kvf__matvec_) = {.name = KVF__LEVEL_NAME, .run = run};
