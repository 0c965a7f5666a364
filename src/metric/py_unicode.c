/* Unicode as in Python's str, in which the reference metrics of texts are written.
 *
 * utf8proc has categories and simple case mappings. Two rules are added (Unicode, SpecialCasing.txt
 * and section 3.13). A capital I with a dot becomes two code points. A capital sigma at the end of
 * a word gets its final form. */
#include "utf8.h"
#include "words.h"

#include <string.h>
#include <utf8proc.h>

enum {
    CAPITAL_I_DOT = 0x130,
    DOT_ABOVE = 0x307,
    CAPITAL_SIGMA = 0x3A3,
    SIGMA = 0x3C3,
    FINAL_SIGMA = 0x3C2
};

kvf_status kvf__code_points(kvf_ctx *ctx, kvf__phrase text, kvf__ids *out)
{
    out->n = 0;
    for (size_t at = 0, n; at < text.n; at += n) {
        uint32_t c;
        n = kvf__utf8_next(text.text + at, text.n - at, &c);
        if (c == UINT32_MAX) n = 1; /* U+FFFD for each bad byte */
        KVF_TRY(kvf__ids_add(ctx, out, c == UINT32_MAX ? KVF__REPLACEMENT : (int32_t)c));
    }
    return KVF_OK;
}

kvf_status kvf__put_code_point(kvf_ctx *ctx, kvf__buf *out, int32_t c)
{
    char bytes[4];
    return kvf__buf_add(ctx, out, bytes, kvf__utf8_put(bytes, (uint32_t)c));
}

static bool is_cased(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

/* Case_Ignorable: marks, formats, modifiers, and word-internal punctuation. */
static bool is_case_ignorable(int32_t c)
{
    static const int32_t INSIDE[] = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,
                                     0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                     0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};

    for (size_t i = 0; i < sizeof INSIDE / sizeof *INSIDE; i++)
        if (c == INSIDE[i]) return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

/* Returns whether a letter precedes the sigma at `at` and none follows. */
static bool is_final(const kvf__ids *text, size_t at)
{
    size_t i = at, k = at + 1;

    while (i > 0 && is_case_ignorable(text->data[i - 1]))
        i--;
    if (i == 0 || !is_cased(text->data[i - 1])) return false;
    while (k < text->n && is_case_ignorable(text->data[k]))
        k++;
    return k == text->n || !is_cased(text->data[k]);
}

kvf_status kvf__py_lower(kvf_ctx *ctx, const kvf__ids *text, kvf__ids *out)
{
    out->n = 0;
    for (size_t i = 0; i < text->n; i++) {
        int32_t c = text->data[i], low = utf8proc_tolower(c);
        if (c == CAPITAL_I_DOT) {
            KVF_TRY(kvf__ids_add(ctx, out, 'i'));
            low = DOT_ABOVE;
        } else if (c == CAPITAL_SIGMA) {
            low = is_final(text, i) ? FINAL_SIGMA : SIGMA;
        }
        KVF_TRY(kvf__ids_add(ctx, out, low));
    }
    return KVF_OK;
}

bool kvf__py_space(int32_t c)
{
    if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool kvf__py_word(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    bool number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    return letter || number || c == '_';
}
