/* Character classes as in the `tokenizers` library.
 *
 * The tables of Rust and its crates decide, not the Unicode version of utf8proc. Numbers and case
 * are of Unicode 17, punctuation and BERT's marks and controls of Unicode 8, its normaliser of
 * Unicode 9. Classes come from utf8proc (Unicode 15 or later), corrected by the tables here. They
 * were made from the library's results for every code point (0.23.3) and the categories of Unicode
 * 8 to 18. Only \w uses utf8proc alone; its version affects a few rare scripts. */
#include "chars.h"
#include "utf8.h"

#include <utf8proc.h>

typedef struct range {
    uint32_t first, last;
} range;

/* Additions to category N after Unicode 15, up to 17. */
static const range NEW_NUMBERS[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9},
    {0x11DE0, 0x11DE9}, {0x16130, 0x16139}, {0x16D70, 0x16D79},
    {0x16FF4, 0x16FF6}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA},
};

/* Additions to category P after Unicode 8, up to 18. Gaps inside the ranges are no punctuation in
 * any version. */
static const range NEW_PUNCT[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC84},
    {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7F},   {0x2E43, 0x2E63},   {0x10D6E, 0x10D6E},
    {0x10EAD, 0x10ED0}, {0x10F55, 0x10F89}, {0x113D4, 0x113D8}, {0x1144B, 0x1145D},
    {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946},
    {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11AA2}, {0x11B00, 0x11B09},
    {0x11BE1, 0x11BE1}, {0x11C41, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F},
    {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A},
    {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F},
};

/* Additions to the marks after Unicode 9, up to 16. */
static const range NEW_MARKS[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},
    {0xCF3, 0xCF3},     {0xD00, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},
    {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},   {0x180F, 0x180F},
    {0x1ABF, 0x1ACE},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0xA8FF, 0xA8FF},   {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC},
    {0x10EFC, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x11145, 0x11146}, {0x111C9, 0x111C9},
    {0x111CE, 0x111CF}, {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x113B8, 0x113C0},
    {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0},
    {0x113D2, 0x113D2}, {0x113E1, 0x113E2}, {0x1145E, 0x1145E}, {0x1182C, 0x1183A},
    {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193B, 0x1193E}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119D1, 0x119D7}, {0x119DA, 0x119E0}, {0x119E4, 0x119E4},
    {0x11A01, 0x11A0A}, {0x11A33, 0x11A39}, {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47},
    {0x11A51, 0x11A5B}, {0x11A8A, 0x11A99}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A},
    {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D8A, 0x11D8E},
    {0x11D90, 0x11D91}, {0x11D93, 0x11D97}, {0x11EF3, 0x11EF6}, {0x11F00, 0x11F01},
    {0x11F03, 0x11F03}, {0x11F34, 0x11F3A}, {0x11F3E, 0x11F42}, {0x11F5A, 0x11F5A},
    {0x13440, 0x13440}, {0x13447, 0x13455}, {0x1611E, 0x1612F}, {0x16F4F, 0x16F4F},
    {0x16F7F, 0x16F87}, {0x16FE4, 0x16FE4}, {0x16FF0, 0x16FF1}, {0x1CF00, 0x1CF2D},
    {0x1CF30, 0x1CF46}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF},
};

/* Further non-spacing marks that are not in Unicode 8. Gaps inside the ranges are no such marks in
 * any version. */
static const range NINTH_MARKS[] = {
    {0x8D4, 0x8E1},     {0x1885, 0x1886},   {0x1DFB, 0x1DFB},   {0xA8C5, 0xA8C5},
    {0xA9BD, 0xA9BD},   {0x1123E, 0x1123E}, {0x11438, 0x11446}, {0x11C30, 0x11CB6},
    {0x1E000, 0x1E02A}, {0x1E944, 0x1E94A},
};

/* Additions to category Cf after Unicode 8, up to 18. */
static const range NEW_CONTROLS[] = {
    {0x890, 0x891}, {0x8E2, 0x8E2}, {0x110CD, 0x110CD}, {0x13430, 0x1343F}};

/* The start of the last range but one is wrong by a hundred pages, as in the library. */
static const range CHINESE[] = {
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
    {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
};

/* Decompositions added after Unicode 9. */
static const range NEW_DECOMPOSITIONS[] = {
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x11938, 0x11938}, {0x1E030, 0x1E06D},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

/* Lower case added after Unicode 15, and the first code point of the one lower case with two. */
static const struct {
    uint32_t first, last, to;
} NEW_LOWER[] = {
    {0x130, 0x130, 'i'},         {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},
    {0xA7CC, 0xA7CC, 0xA7CD},    {0xA7CE, 0xA7CE, 0xA7CF},    {0xA7D2, 0xA7D2, 0xA7D3},
    {0xA7D4, 0xA7D4, 0xA7D5},    {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x19B},
    {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB},
};

static bool in_table(const range *table, size_t n, uint32_t cp)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (cp > table[mid].last)
            low = mid + 1;
        else if (cp < table[mid].first)
            high = mid;
        else
            return true;
    }
    return false;
}

#define IN_TABLE(table, cp) in_table(table, sizeof(table) / sizeof *(table), cp)

static bool between(uint32_t cp, uint32_t first, uint32_t last)
{
    return cp >= first && cp <= last;
}

static bool in_category(uint32_t cp, utf8proc_category_t first, utf8proc_category_t last)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);
    return category >= first && category <= last;
}

bool kvf__is_space(uint32_t cp)
{
    if (cp < 0x80) return cp == ' ' || between(cp, '\t', '\r');
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || between(cp, 0x2000, 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool kvf__is_numeric(uint32_t cp)
{
    if (cp < 0x80) return between(cp, '0', '9');
    return in_category(cp, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO) || IN_TABLE(NEW_NUMBERS, cp);
}

bool kvf__is_punct(uint32_t cp)
{
    if (cp < 0x80)
        return between(cp, '!', '~') && !between(cp | 0x20, 'a', 'z') && !between(cp, '0', '9');
    if (cp == 0x166D || cp == 0x111C9) return true; /* no longer punctuation */
    return in_category(cp, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO) && !IN_TABLE(NEW_PUNCT, cp);
}

bool kvf__is_mark(uint32_t cp)
{
    return cp >= 0x300 && in_category(cp, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

static bool is_new_mark(uint32_t cp)
{
    return cp >= 0x300 && IN_TABLE(NEW_MARKS, cp);
}

/* U+1CF2 and U+1CF3 were marks in Unicode 9. */
bool kvf__is_accent(uint32_t cp)
{
    return (kvf__is_mark(cp) && !is_new_mark(cp)) || cp == 0x1CF2 || cp == 0x1CF3;
}

/* U+1734 was one in Unicode 8. */
bool kvf__is_nonspacing(uint32_t cp)
{
    if (cp < 0x300) return false;
    if (!in_category(cp, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN)) return cp == 0x1734;
    return !is_new_mark(cp) && !IN_TABLE(NINTH_MARKS, cp);
}

bool kvf__is_dropped(uint32_t cp)
{
    if (cp == '\t' || cp == '\n' || cp == '\r') return false;
    if (cp == KVF__REPLACEMENT || in_category(cp, UTF8PROC_CATEGORY_CO, UTF8PROC_CATEGORY_CO))
        return true;
    return in_category(cp, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF) &&
           !IN_TABLE(NEW_CONTROLS, cp);
}

bool kvf__is_chinese(uint32_t cp)
{
    return cp >= 0x3400 && IN_TABLE(CHINESE, cp);
}

int kvf__combining_class(uint32_t cp)
{
    if (cp < 0x300 || is_new_mark(cp)) return 0;
    return utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

bool kvf__may_decompose(uint32_t cp)
{
    return cp >= 0xA0 && !IN_TABLE(NEW_DECOMPOSITIONS, cp);
}

uint32_t kvf__lower(uint32_t cp)
{
    for (size_t i = 0; cp >= 0x130 && i < sizeof NEW_LOWER / sizeof *NEW_LOWER; i++)
        if (between(cp, NEW_LOWER[i].first, NEW_LOWER[i].last))
            return NEW_LOWER[i].to + (cp - NEW_LOWER[i].first);
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}

/* Alphabetic, marks, decimal digits, connectors, the two joiners. The four ranges are circled and
 * squared letters, which are Alphabetic but not letters. */
bool kvf__is_word(uint32_t cp)
{
    if (cp < 0x80) return between(cp | 0x20, 'a', 'z') || between(cp, '0', '9') || cp == '_';
    if (cp == 0x200C || cp == 0x200D || between(cp, 0x24B6, 0x24E9) ||
        between(cp, 0x1F130, 0x1F149) || between(cp, 0x1F150, 0x1F169) ||
        between(cp, 0x1F170, 0x1F189))
        return true;
    return in_category(cp, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO) || kvf__is_mark(cp) ||
           in_category(cp, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL) ||
           in_category(cp, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PC);
}

bool kvf__is_break(uint32_t cp, uint32_t next, int32_t *state)
{
    return utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, state);
}
