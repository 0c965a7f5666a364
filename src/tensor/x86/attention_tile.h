/* Matrix products of attention on packed operands, and other code that depends on the unit
 * (attention_pack.h).
 *
 * Included once per ATTN_PAIR (1: f32, 2: bf16 pairs), with ATTN(name) as the name of a copy. A
 * product consists of register tiles of TILE_ROWS x 2 vectors. It multiplies a broadcast unit of A
 * by vectors of units of B, so neither K nor V need a transposed copy. TILE_ROWS is 8 for 32
 * registers, 4 for 16. */

/* Returns acc + a * b, summed within units. */
VEC_INLINE vf ATTN(madd)(vf a, vf b, vf acc)
{
#if ATTN_PAIR == 2
    return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_castps_si512(a),
                            (__m512bh)_mm512_castps_si512(b));
#else
    return vf_fma(a, b, acc);
#endif
}

/* Computes c [TILE_ROWS, vectors] = or += the sum over units of A and B. Element (r, u) of A is at
 * a[r * a_row + u * a_unit]. */
VEC_INLINE void ATTN(tile)(int vectors, const attn_product *p, const float *a, int64_t a_row,
                           int64_t a_unit, float *c)
{
    vf acc[TILE_ROWS][2];
    const float *b = p->b;
    const int64_t ldb = p->ldb, n = p->units;
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vectors; v++)
            acc[r][v] = p->add ? vf_load(c + r * p->ldc + v * VF_LANES) : vf_zero();
    for (int64_t u = 0; u < n; u++, a += a_unit, b += ldb) {
        vf bu[2];
        for (int v = 0; v < vectors; v++)
            bu[v] = vf_load(b + v * VF_LANES);
        for (int r = 0; r < TILE_ROWS; r++) {
            const vf au = vf_set(a[r * a_row]);
            for (int v = 0; v < vectors; v++)
                acc[r][v] = ATTN(madd)(au, bu[v], acc[r][v]);
        }
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < vectors; v++)
            vf_store(c + r * p->ldc + v * VF_LANES, acc[r][v]);
}

/* A's rows are contiguous: element (m, u) at a[m * lda + u]. */
static __attribute__((noinline)) void ATTN(product_rows)(const attn_product *p)
{
    for (int64_t m = 0; m < p->rows; m += TILE_ROWS) {
        if (p->vectors == 2)
            ATTN(tile)(2, p, p->a + m * p->lda, p->lda, 1, p->c + m * p->ldc);
        else
            ATTN(tile)(1, p, p->a + m * p->lda, p->lda, 1, p->c + m * p->ldc);
    }
}

/* A's columns are contiguous: element (m, u) at a[u * lda + m]. */
static __attribute__((noinline)) void ATTN(product_cols)(const attn_product *p)
{
    for (int64_t m = 0; m < p->rows; m += TILE_ROWS) {
        if (p->vectors == 2)
            ATTN(tile)(2, p, p->a + m, 1, p->lda, p->c + m * p->ldc);
        else
            ATTN(tile)(1, p, p->a + m, 1, p->lda, p->c + m * p->ldc);
    }
}

/* Returns 2^x of scores minus their maximum (or log-sum-exp), so x is never far above 0. For bf16
 * results 4 terms suffice, and scalef handles large negative x. */
VEC_INLINE vf ATTN(power)(vf x)
{
#if ATTN_PAIR == 2
    const vf n = vf_round(x), r = x - n; /* relative error of the cubic: 8e-5 */
    vf q = vf_fma(r, vf_set(0.05517157f), vf_set(0.24261111f));
    q = vf_fma(q, r, vf_set(0.693261f));
    return _mm512_scalef_ps(vf_fma(q, r, vf_set(0.99992807f)), n);
#else
    return vf_exp2(x);
#endif
}

/* Packs up to VF_LANES elements of row i into a packed row. */
VEC_INLINE void ATTN(pack_part)(float *dst, const kvf__attn_rows *src, int64_t i, int64_t d,
                                int64_t n, int64_t width)
{
    const vf part = load_part(src, i, d, n);
#if ATTN_PAIR == 2
    vf_store_bf16((uint16_t *)(void *)dst + i * width + d, part);
#else
    vf_store(dst + i * width + d, part);
#endif
}

/* Packs n rows of D elements into rows of `width`, padded with zeros. */
VEC_INLINE void ATTN(pack_typed)(kvf__dtype dtype, float *dst, const kvf__attn_rows *src, int64_t n,
                                 int64_t D, int64_t width)
{
    const kvf__attn_rows from = {src->base, dtype, src->at, src->stride};
    for (int64_t i = 0; i < n; i++) {
        int64_t d = 0;
        prefetch_row(&from, i + AHEAD, D, 0);
        for (; d + VF_LANES <= D; d += VF_LANES)
            ATTN(pack_part)(dst, &from, i, d, VF_LANES, width);
        for (; d < width; d += VF_LANES)
            ATTN(pack_part)(dst, &from, i, d, attn_max(D - d, 0), width);
    }
}

static void ATTN(pack_rows)(float *dst, const kvf__attn_rows *src, int64_t n, int64_t D,
                            int64_t width)
{
    if (src->dtype == KVF__F32)
        ATTN(pack_typed)(KVF__F32, dst, src, n, D, width);
    else
        ATTN(pack_typed)(KVF__BF16, dst, src, n, D, width);
}

#if ATTN_PAIR == 2

/* Lane l of the result holds element l of a and of b. */
VEC_INLINE vf join(vf a, vf b)
{
    static const uint16_t order[32] __attribute__((aligned(64))) = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_load_si512(order), both));
}

/* Converts packed rows [n][width] to pairs [n/2][width]. */
static void ATTN(pack_pairs)(float *dst, const float *rows, int64_t n, int64_t width)
{
    const __m512i first = _mm512_set1_epi32(0x00200000);
    const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i low = _mm512_add_epi32(first,
                                         _mm512_mullo_epi32(count, _mm512_set1_epi32(0x00010001)));
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(0x00100010));
    for (int64_t i = 0; i < n / 2; i++)
        for (int64_t d = 0; d < width; d += 32) {
            const float *at = rows + (2 * i * width + d) / 2;
            const __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + width / 2);
            vf_store(dst + i * width + d,
                     _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, low, b)));
            vf_store(dst + i * width + d + 16,
                     _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, high, b)));
        }
}

#else

/* With f32 the pairs are the rows themselves. */
static void ATTN(pack_pairs)(float *dst, const float *rows, int64_t n, int64_t width)
{
    (void)dst, (void)rows, (void)n, (void)width;
}

#endif
