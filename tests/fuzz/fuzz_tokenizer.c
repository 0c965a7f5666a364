/* tokenizer.json and, after a byte 0x1e, tokenizer_config.json: builds and uses a tokenizer. A text
 * from the input follows another 0x1e. */
#include "fuzz_text.h"
#include "tok_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf__tokenizer *tokenizer = NULL;
    size_t json_n, config_n, text_n;
    const char *json = fuzz_part(&data, &n, &json_n), *config = fuzz_part(&data, &n, &config_n),
               *text = fuzz_part(&data, &n, &text_n);

    if (tokenizer_from_json(fuzz_context(), "tokenizer.json", json, json_n,
                            config_n ? config : NULL, config_n, &tokenizer))
        return 0;
    fuzz_use_tokenizer(tokenizer, text, text_n);
    kvf__tokenizer_free(tokenizer);
    return 0;
}
