/* Classes of Oniguruma's Unicode 16 in PCRE2's words, for use inside [...]: its own properties,
 * which may be of an older Unicode, and after them what Unicode 15 to 16 added. The ranges were
 * made by asking both libraries about every code point. */
#ifndef KVF_PATTERN_UNICODE_H
#define KVF_PATTERN_UNICODE_H

#define KVF__NEW_UPPER "\\x{1C89}\\x{A7CB}-\\x{A7CC}\\x{A7DA}\\x{A7DC}\\x{10D50}-\\x{10D65}"

#define KVF__NEW_LOWER "\\x{1C8A}\\x{A7CD}\\x{A7DB}\\x{10D70}-\\x{10D85}\\x{1DF25}-\\x{1DF2A}"

#define KVF__NEW_MODIFIERS                                                                         \
    "\\x{10D4E}\\x{10D6F}\\x{16D40}-\\x{16D42}\\x{16D6B}-\\x{16D6C}"                               \
    "\\x{1E030}-\\x{1E06D}\\x{1E4EB}"

#define KVF__NEW_OTHER                                                                             \
    "\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D4D}\\x{10D4F}\\x{10EC2}-\\x{10EC4}"                    \
    "\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}"                               \
    "\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}"           \
    "\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}"                    \
    "\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}\\x{16D43}-\\x{16D6A}\\x{18CFF}"                    \
    "\\x{1B132}\\x{1B155}\\x{1E4D0}-\\x{1E4EA}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}"           \
    "\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"

#define KVF__NEW_LETTERS KVF__NEW_UPPER KVF__NEW_LOWER KVF__NEW_MODIFIERS KVF__NEW_OTHER

#define KVF__NEW_MARKS                                                                             \
    "\\x{897}\\x{CF3}\\x{ECE}\\x{10D69}-\\x{10D6D}\\x{10EFC}-\\x{10EFF}\\x{11241}"                 \
    "\\x{113B8}-\\x{113C0}\\x{113C2}\\x{113C5}\\x{113C7}-\\x{113CA}"                               \
    "\\x{113CC}-\\x{113D0}\\x{113D2}\\x{113E1}-\\x{113E2}\\x{11F00}-\\x{11F01}"                    \
    "\\x{11F03}\\x{11F34}-\\x{11F3A}\\x{11F3E}-\\x{11F42}\\x{11F5A}\\x{13440}"                     \
    "\\x{13447}-\\x{13455}\\x{1611E}-\\x{1612F}\\x{1E08F}\\x{1E4EC}-\\x{1E4EF}"                    \
    "\\x{1E5EE}-\\x{1E5EF}"

#define KVF__NEW_NUMBERS                                                                           \
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}"         \
    "\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}"         \
    "\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}"

#define KVF__NEW_DIGITS                                                                            \
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}"         \
    "\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1E4F0}-\\x{1E4F9}"         \
    "\\x{1E5F1}-\\x{1E5FA}"

#define KVF__RE_LETTER   "\\p{L}" KVF__NEW_LETTERS
#define KVF__RE_UPPER    "\\p{Lu}" KVF__NEW_UPPER
#define KVF__RE_LOWER    "\\p{Ll}" KVF__NEW_LOWER
#define KVF__RE_MODIFIER "\\p{Lm}" KVF__NEW_MODIFIERS
#define KVF__RE_OTHER    "\\p{Lo}" KVF__NEW_OTHER
#define KVF__RE_MARK     "\\p{M}" KVF__NEW_MARKS
#define KVF__RE_NUMBER   "\\p{N}" KVF__NEW_NUMBERS
#define KVF__RE_DIGIT    "\\p{Nd}" KVF__NEW_DIGITS
#define KVF__RE_WORD                                                                               \
    "\\p{Alphabetic}" KVF__RE_MARK                                                                 \
    "\\p{Nd}\\p{Pc}\\x{B2}-\\x{B3}\\x{B9}\\x{BC}-\\x{BE}" KVF__NEW_LETTERS KVF__NEW_DIGITS

#endif
