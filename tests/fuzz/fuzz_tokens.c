/* Token shards of all formats but HDF5. */
#include <string.h>

#include "io/tokens.h"
#include "tests/fuzz/fuzz_file.h"

#define CONTEXT 4
#define VOCAB   300

static void fetch(const ddp_tokens_t *tokens)
{
    const size_t n = ddp_tokens_info(tokens)->sequences;

    for (size_t i = 0; i < n && i < 64; i++) {
        const size_t index = i < 32 ? i : n - 1 - (i - 32) % n;
        int32_t      inputs[CONTEXT];
        int32_t      targets[CONTEXT];

        if (ddp_tokens_fetch(tokens, &index, 1, inputs, targets) != DDP_OK) {
            continue;
        }
        for (size_t t = 0; t < CONTEXT; t++) {
            if (inputs[t] < 0 || inputs[t] >= VOCAB || targets[t] < 0 || targets[t] >= VOCAB) {
                abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ddp_tokens_format_t formats[] = {DDP_TOKENS_LLMC, DDP_TOKENS_UINT16, DDP_TOKENS_UINT32,
                                           DDP_TOKENS_TEXT};
    char                      path[64];
    const int                 fd = fuzz_file(data, size, path);

    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
        ddp_tokens_params_t params = DDP_TOKENS_PARAMS_INIT;
        ddp_tokens_t       *tokens = NULL;

        params.format  = formats[f];
        params.path    = path;
        params.context = CONTEXT;
        params.vocab   = VOCAB;
        if (ddp_tokens_open(&params, &tokens) == DDP_OK) {
            fetch(tokens);
        }
        ddp_tokens_close(&tokens);
    }
    (void)close(fd);
    return 0;
}
